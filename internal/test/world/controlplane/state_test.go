package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestSecondRunOnTheSameFolderKeepsPortsTokenAndCertificates(t *testing.T) {
	dir := t.TempDir()
	first, firstFiles := openAndRead(t, dir)
	second, secondFiles := openAndRead(t, dir)
	if first.Ports != second.Ports || first.Token != second.Token {
		t.Errorf("second run has ports %+v, want %+v; tokens equal: %v", second.Ports, first.Ports, first.Token == second.Token)
	}
	for name, want := range firstFiles {
		if secondFiles[name] != want {
			t.Errorf("%s differs in the second run", name)
		}
	}
}

func openAndRead(t *testing.T, dir string) (*state, map[string]string) {
	t.Helper()
	st, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.lock.Close()
	files := map[string]string{}
	for _, name := range []string{"server.crt", "server.key", "tokens.csv", "kubeconfig"} {
		data, err := os.ReadFile(st.path(name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	return st, files
}

func TestFolderWhoseMakingWasCutShortIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	first, _ := openAndRead(t, dir)
	if err := os.Remove(first.path("state.json")); err != nil {
		t.Fatal(err)
	}
	second, files := openAndRead(t, dir)
	if first.Token == second.Token {
		t.Error("the token of the incomplete folder was kept")
	}
	config, err := clientcmd.BuildConfigFromFlags("", second.path("kubeconfig"))
	if err != nil || config.BearerToken != second.Token || !strings.Contains(string(config.CAData), "CERTIFICATE") {
		t.Errorf("the kubeconfig does not have the new token and a CA (%v):\n%s", err, files["kubeconfig"])
	}
}

func TestFolderOfAKilledControlPlaneIsTakenWhenItsChildrenHaveEnded(t *testing.T) {
	dir := t.TempDir()
	st, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.2") // as a killed one leaves it: with the lock
	child.ExtraFiles = []*os.File{st.lock}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	st.lock.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = child.Wait() // it is a sleep
	}()
	again, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.lock.Close()
	<-ended
}
