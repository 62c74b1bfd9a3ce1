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
	"time"
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

// lockWait bounds the wait for the children of a killed control plane.
const lockWait = 10 * time.Second

// lockDir takes the folder's lock, which the children inherit: the kernel
// gives it back when all processes of a control plane have ended, however they
// did, so who has it finds the ports free too. When the process that took it is
// gone its children soon will be, and they are waited for.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock folder %s: %w", dir, err)
	}
	if err := writeHolder(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("write lock: %w", err)
	}
	return f, nil
}

func lockFile(f *os.File) error {
	deadline := time.Now().Add(lockWait)
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		pid := readHolder(f.Name())
		if alive := pid > 0 && syscall.Kill(pid, 0) == nil; alive || time.Now().After(deadline) {
			return fmt.Errorf("it is in use by another control plane (pid %d): stop that one or name another folder", pid)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// readHolder returns the process that took the lock, 0 if it is not known yet.
func readHolder(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

func writeHolder(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
