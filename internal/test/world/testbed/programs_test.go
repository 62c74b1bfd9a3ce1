package testbed

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStartedDriverListensAndStopsCleanly(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	binary, err := SharedBinary(t.Context(), BuildOptions{Package: "./cmd/testbed"})
	if err != nil {
		t.Fatal(err)
	}
	if again, err := SharedBinary(t.Context(), BuildOptions{Package: "./cmd/testbed"}); err != nil || again != binary {
		t.Errorf("the second build gave %s (%v), want the first, %s", again, err, binary)
	}
	dir := ShortTempDir(t)
	socket := filepath.Join(dir, "csi.sock")
	driver, err := StartProcess(t.Context(), ProcessOptions{
		Name: "driver", Path: binary, LogPath: filepath.Join(dir, "driver.log"),
		Args:      []string{"driver", "--name", "test.csi.example.com", "--endpoint", "unix://" + socket},
		ReadyLine: "driver ", // NAME listens on ENDPOINT
	})
	if err != nil {
		t.Fatal(err)
	}
	KillAtEnd(t, driver)
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := driver.Stop(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

func TestHubThatEndsAtOnceTellsWhy(t *testing.T) {
	hub, err := StartHub(t.Context(), HubOptions{
		// Stands for the hub: a shell that does not know its flags.
		Binary:        "/bin/sh",
		Kubeconfig:    "kubeconfig",
		Config:        "drivers.yaml",
		ShutdownGrace: time.Second,
		LogPath:       filepath.Join(t.TempDir(), "hub.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = hub.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "hub") || !strings.Contains(err.Error(), "its last lines") {
		t.Errorf("error is %v, want one with the end of the log", err)
	}
	if hub.ExitCode() == 0 {
		t.Error("exit code is 0")
	}
}
