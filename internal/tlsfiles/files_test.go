package tlsfiles_test

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

func TestLoadNamesTheFileThatIsWrong(t *testing.T) {
	a := certtest.NewAuthority(t, "a")
	for _, test := range []struct {
		name  string
		spoil func(certtest.Files)
		want  func(certtest.Files) string
	}{
		{"no CA", func(f certtest.Files) { os.Remove(f.CA) }, func(f certtest.Files) string { return "there is no file " + f.CA }},
		{"no key", func(f certtest.Files) { os.Remove(f.Key) }, func(f certtest.Files) string { return "there is no file " + f.Key }},
		{"empty CA", func(f certtest.Files) { certtest.WriteFile(t, f.CA, nil) }, func(f certtest.Files) string { return f.CA + " holds no certificate of a CA" }},
		{"key of another certificate", func(f certtest.Files) { certtest.WriteFile(t, f.Key, a.Issue(certtest.Request{}).KeyPEM) },
			func(f certtest.Files) string { return "key in " + f.Key + ": tls: private key does not match" }},
		{"half a certificate", func(f certtest.Files) { truncate(t, f.Cert) }, func(f certtest.Files) string { return "certificate in " + f.Cert }},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := certtest.Write(t, t.TempDir(), a, a.Issue(certtest.Request{}))
			test.spoil(files)
			_, err := tlsfiles.Files(files).Load()
			if err == nil || !strings.Contains(err.Error(), test.want(files)) {
				t.Errorf("got %v, want %q", err, test.want(files))
			}
			if strings.HasPrefix(test.name, "no ") && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v is not fs.ErrNotExist", err)
			}
		})
	}
}

func truncate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()/2); err != nil {
		t.Fatal(err)
	}
}

func TestCertificateHoldsForItsTimeOnly(t *testing.T) {
	a := certtest.NewAuthority(t, "a")
	now := time.Now()
	m, err := tlsfiles.Files(certtest.Write(t, t.TempDir(), a, a.Issue(certtest.Request{From: now, To: now.Add(time.Hour)}))).Load()
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]string{-time.Minute: "not valid before", time.Minute: "", 2 * time.Hour: "expired at"} {
		err := m.CheckTime(now.Add(at))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s later: got %v, want %q", at, err, want)
		}
	}
}

func TestAChangeIsTakenOnceItIsWhole(t *testing.T) {
	a, b := certtest.NewAuthority(t, "a"), certtest.NewAuthority(t, "b")
	dir := t.TempDir()
	files := certtest.Write(t, dir, a, a.Issue(certtest.Request{}))
	used, err := tlsfiles.Files(files).Load()
	if err != nil {
		t.Fatal(err)
	}
	reload := func(what string, wantNew, wantErr bool) {
		t.Helper()
		m, err := used.Reload()
		if (m != nil) != wantNew || (err != nil) != wantErr {
			t.Errorf("%s: got %v, %v", what, m, err)
		}
		if m != nil {
			used = m
		}
	}
	reload("nothing changed", false, false)
	first := a.Issue(certtest.Request{})
	certtest.WriteFile(t, files.Cert, first.CertPEM)
	reload("a certificate without its key", false, true)
	certtest.WriteFile(t, files.Key, first.KeyPEM)
	reload("whole", true, false)
	reload("taken", false, false)
	certtest.Write(t, dir, b, first)
	reload("another CA", true, false)
}
