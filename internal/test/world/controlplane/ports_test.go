package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

func TestPickedPortsAreDistinctAndFree(t *testing.T) {
	p, err := pickPorts()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, port := range []int{p.APIServer, p.ControllerManager, p.EtcdClient, p.EtcdPeer} {
		if port < firstPort || port > lastPort || seen[port] {
			t.Errorf("port %d is out of range or double in %+v", port, p)
		}
		seen[port] = true
	}
}

func TestPortTakenMeanwhileIsAClearError(t *testing.T) {
	p, err := pickPorts()
	if err != nil {
		t.Fatal(err)
	}
	st := &state{dir: t.TempDir(), Ports: p}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.ControllerManager)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	if err := st.checkPorts(false); err != nil {
		t.Errorf("a port that is not used matters: %v", err)
	}
	err = st.checkPorts(true)
	if err == nil {
		t.Fatal("taken port was not noticed")
	}
	for _, want := range []string{"kube-controller-manager", strconv.Itoa(p.ControllerManager), "state.json"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}
