package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
)

// state is a folder that this process owns: everything a later run needs to be
// the same control plane for its clients.
type state struct {
	dir   string
	lock  *os.File
	Ports ports  `json:"ports"`
	Token string `json:"token"` // of a user in system:masters
}

// ports of the control plane, all on 127.0.0.1.
type ports struct {
	APIServer  int `json:"apiServer"`
	EtcdClient int `json:"etcdClient"`
	EtcdPeer   int `json:"etcdPeer"`
}

// openState locks dir and reads the state in it, or makes it. The caller must close the lock. It blocks while another control
// plane has the lock. The children inherit the lock: the kernel gives it back when all processes of a control plane have
// ended, however they did, so who has it finds the ports free too.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	st := &state{dir: dir, lock: lock}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	if err == nil {
		err = st.readOrMake()
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("state in %s: %w", dir, err)
	}
	return st, nil
}

func (s *state) path(name string) string { return filepath.Join(s.dir, name) }

func (s *state) readOrMake() error {
	data, err := os.ReadFile(s.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s.make()
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, s)
}

// make writes state.json last: a folder that has it is complete, and one whose
// making was cut short is made again.
func (s *state) make() error {
	taken := map[int]bool{}
	for _, port := range []*int{&s.Ports.APIServer, &s.Ports.EtcdClient, &s.Ports.EtcdPeer} {
		*port = pickPort(taken)
	}
	s.Token = rand.Text()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	server := loopbackURL("https", s.Ports.APIServer)
	config.Clusters["csi-attach-hub"] = &clientcmdapi.Cluster{Server: server.String(), CertificateAuthorityData: certificate}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: s.Token}
	config.Contexts["csi-attach-hub"] = &clientcmdapi.Context{Cluster: "csi-attach-hub", AuthInfo: "admin", Namespace: "default"}
	config.CurrentContext = "csi-attach-hub"
	if err := clientcmd.WriteToFile(*config, s.path("kubeconfig")); err != nil {
		return err
	}
	state, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	for _, file := range []struct {
		name string
		data []byte
	}{
		{"server.crt", certificate}, {"server.key", key}, {"tokens.csv", fmt.Appendf(nil, "%s,admin,admin,system:masters\n", s.Token)}, {"state.json", state},
	} {
		if err := os.WriteFile(s.path(file.name), file.data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// pickPort returns a port that nobody listens on at the moment. It is below the range that the usual kernels take for
// outgoing connections. A port from that range could be in use as the near end of somebody's connection just when the
// control plane starts again on it, and a client that dials it while nobody listens can even connect to itself.
func pickPort(taken map[int]bool) int {
	for {
		port := 18000 + mathrand.IntN(12000)
		if taken[port] {
			continue
		}
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			l.Close()
			taken[port] = true
			return port
		}
	}
}
