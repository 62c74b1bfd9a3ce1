package testbed

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
