package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports are picked below the range that the usual kernels take for
// outgoing connections. A port from that range could be in use as the near end
// of somebody's connection just when the control plane starts again on it, and
// a client that dials it while nobody listens can even connect to itself.
const (
	firstPort = 18000
	lastPort  = 29999
)

// ports of the control plane, all on 127.0.0.1.
type ports struct {
	APIServer         int `json:"apiServer"`
	ControllerManager int `json:"controllerManager"`
	EtcdClient        int `json:"etcdClient"`
	EtcdPeer          int `json:"etcdPeer"`
}

// pickPorts returns ports that nobody listens on at the moment.
func pickPorts() (ports, error) {
	var p ports
	taken := map[int]bool{}
	for _, port := range []*int{&p.APIServer, &p.ControllerManager, &p.EtcdClient, &p.EtcdPeer} {
		free, err := pickPort(taken)
		if err != nil {
			return ports{}, err
		}
		taken[free] = true
		*port = free
	}
	return p, nil
}

func pickPort(taken map[int]bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !taken[port] && checkPort(port) == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d on 127.0.0.1", firstPort, lastPort)
}

// checkPort reports whether a listener can be opened on the port.
func checkPort(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// checkPorts reports every port of an earlier run that cannot be had any more.
// Another port would not do: clients have the kubeconfig with the old one.
func (s *state) checkPorts(controllerManager bool) error {
	type use struct {
		name string
		port int
	}
	uses := []use{{"kube-apiserver", s.Ports.APIServer}, {"etcd clients", s.Ports.EtcdClient}, {"etcd peers", s.Ports.EtcdPeer}}
	if controllerManager {
		uses = append(uses, use{"kube-controller-manager", s.Ports.ControllerManager})
	}
	var errs []error
	for _, u := range uses {
		if err := checkPort(u.port); err != nil {
			errs = append(errs, fmt.Errorf("port of %s, recorded in %s, is not free: %w: end the process that has it, or start in a new folder",
				u.name, s.path("state.json"), err))
		}
	}
	return errors.Join(errs...)
}
