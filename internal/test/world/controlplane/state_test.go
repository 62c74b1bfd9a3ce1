package main

import (
	"os"
	"os/exec"
	"strconv"
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
	defer st.close()
	files := map[string]string{}
	for _, name := range []string{"ca.crt", "server.crt", "server.key", "service-account.key", "tokens.csv", "kubeconfig"} {
		data, err := os.ReadFile(st.path(name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(data)
	}
	return st, files
}

func TestFolderInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	st, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	if _, err := openState(dir); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("second open gave error %v, want one that says in use", err)
	}
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
	if !strings.Contains(files["kubeconfig"], second.Token) {
		t.Error("the kubeconfig does not have the new token")
	}
}

func TestKubeconfigCarriesItsCA(t *testing.T) {
	st, _ := openAndRead(t, t.TempDir())
	cfg, err := clientcmd.BuildConfigFromFlags("", st.path("kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.CAData) == 0 || cfg.BearerToken != st.Token || cfg.Host != st.serverURL() {
		t.Errorf("kubeconfig has %d bytes of CA, host %s, token matches: %v", len(cfg.CAData), cfg.Host, cfg.BearerToken == st.Token)
	}
}

func TestFolderOfAKilledControlPlaneIsTakenWhenItsChildrenHaveEnded(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	// As the killed one leaves it: its child still has the lock, and the
	// process that the file names is gone.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.WriteAt([]byte(strconv.Itoa(gone.ProcessState.Pid())+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "0.2")
	child.ExtraFiles = []*os.File{lock}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lock.Close()

	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
}
