package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

var buildTools sync.Once

// checkVulnerabilities runs `make vulnerabilities`. The first run builds the tools.
func checkVulnerabilities(t *testing.T, variables ...string) (output string, failed bool) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds tools")
	}
	built := []string{"-o", "tools"}
	buildTools.Do(func() { built = nil })
	cmd := exec.CommandContext(t.Context(), "env", slices.Concat([]string{"-u", "GOVULNDB", "make", "-C", "..", "vulnerabilities"}, built, variables)...)
	out, err := cmd.CombinedOutput()
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		t.Fatal(err)
	}
	return string(out), err != nil
}

// A module calls url.Parse, and a database has one made-up vulnerability of the standard library.
func TestVulnerabilityInCalledCodeFails(t *testing.T) {
	module, database := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(module, "go.mod"):  "module example.com/caller\n\ngo 1.26\n",
		filepath.Join(module, "main.go"): "package main\n\nimport \"net/url\"\n\nfunc main() { _, _ = url.Parse(\"\") }\n",
		filepath.Join(database, "GO-2099-0001.json"): `{"schema_version": "1.3.1", "id": "GO-2099-0001", "modified": "2026-01-01T00:00:00Z",
			"database_specific": {"url": "https://example.com/GO-2099-0001"}, "affected": [{"package": {"ecosystem": "Go", "name": "stdlib"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
			"ecosystem_specific": {"imports": [{"path": "net/url", "symbols": ["Parse"]}]}}]}`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, failed := checkVulnerabilities(t, "GOVULNDB="+database, "CHECKED="+module); !failed || !strings.Contains(out, "GO-2099-0001") {
		t.Errorf("failed %v:\n%s", failed, out)
	}
}

func TestVulnerabilityDatabaseThatCannotBeReadFailsUnlessNoConnectionCanBeMade(t *testing.T) {
	const says = "vulnerabilities: NOT CHECKED: the database "
	if out, failed := checkVulnerabilities(t, "GOVULNDB=/nowhere"); !failed || !strings.Contains(out, says+"file:///nowhere cannot be read") {
		t.Errorf("a folder that does not exist: failed %v:\n%s", failed, out)
	}
	t.Setenv("https_proxy", "http://127.0.0.1:1")
	if out, failed := checkVulnerabilities(t); failed || !strings.Contains(out, says+"https://vuln.go.dev cannot be read") {
		t.Errorf("no connection: failed %v:\n%s", failed, out)
	}
}

// govulncheck takes any folder for a database, and finds nothing in it.
func TestEmptyVulnerabilityDatabaseFails(t *testing.T) {
	empty, index := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(index, "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(index, "index", "modules.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, database := range []string{empty, index} {
		says := "vulnerabilities: NOT CHECKED: the database file://" + database + " is empty or broken"
		if out, failed := checkVulnerabilities(t, "GOVULNDB="+database); !failed || !strings.Contains(out, says) || strings.Contains(out, "No vulnerabilities") {
			t.Errorf("failed %v:\n%s", failed, out)
		}
	}
}
