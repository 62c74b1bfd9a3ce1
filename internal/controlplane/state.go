package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// state is a folder that this process owns: everything a later run needs to be
// the same control plane for its clients.
type state struct {
	dir   string
	lock  *os.File
	Ports ports  `json:"ports"`
	Token string `json:"token"` // of a user in system:masters
}

// openState locks dir and reads the state in it, or makes it. The caller must
// close it. It fails when another process has the lock.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state folder: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	st := &state{dir: dir, lock: lock}
	if err := st.readOrMake(); err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

func (s *state) close() { s.lock.Close() }

func (s *state) path(name string) string { return filepath.Join(s.dir, name) }

func (s *state) serverURL() string { return fmt.Sprintf("https://127.0.0.1:%d", s.Ports.APIServer) }

func (s *state) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.Ports.EtcdClient) }

func (s *state) readOrMake() error {
	data, err := os.ReadFile(s.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return s.make()
	}
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(data, s); err != nil {
		return fmt.Errorf("read %s: %w: remove the folder to start anew", s.path("state.json"), err)
	}
	return nil
}

// make writes state.json last: a folder that has it is complete, and one whose
// making was cut short is made again.
func (s *state) make() error {
	var err error
	if s.Ports, err = pickPorts(); err != nil {
		return err
	}
	s.Token = rand.Text()
	if err := makeCerts(s); err != nil {
		return err
	}
	tokens := fmt.Sprintf("%s,admin,admin,system:masters\n", s.Token)
	if err := os.WriteFile(s.path("tokens.csv"), []byte(tokens), 0o600); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	if err := writeKubeconfig(s); err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.WriteFile(s.path("state.json"), data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// lockDir takes the folder's lock, which the kernel gives back when this
// process ends, however it ends. The file says who holds it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(f.Name())
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("folder %s is in use by another control plane (pid %s): stop that one or name another folder",
				dir, strings.TrimSpace(string(holder)))
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("write lock: %w", err)
		}
	}
	return f, nil
}
