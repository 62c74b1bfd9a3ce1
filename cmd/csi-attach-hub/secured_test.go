package main

import (
	"crypto/tls"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// startSecuredHub starts a hub that asks who is there, and returns its address.
func (s *scene) startSecuredHub(args ...string) (hub *testbed.Process, host string) {
	s.t.Helper()
	hub = s.startHub(append([]string{"--http-endpoint=:0", "--http-authorization", "--leader-election-namespace=" + metav1.NamespaceDefault}, args...)...)
	logged(s, hub, "Serving HTTP")
	log, err := os.ReadFile(hub.LogPath())
	if err != nil {
		s.t.Fatal(err)
	}
	match := regexp.MustCompile(`"Serving HTTP" address="[^"]*:(\d+)" tls=true`).FindSubmatch(log)
	if match == nil {
		s.t.Fatalf("no port with TLS in the log:\n%s", log)
	}
	return hub, "127.0.0.1:" + string(match[1])
}

// file writes a file of this test.
func (s *scene) file(name string, content []byte) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	write(s.t, path, string(content))
	return path
}

// stranger makes a ServiceAccount without any right, and returns a token of it.
func (s *scene) stranger(name string) string {
	s.t.Helper()
	accounts := s.plane.Clientset().CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(s.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	request, err := accounts.CreateToken(s.ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return request.Status.Token
}

// shown returns the certificate that a hub shows, as somebody would save it to trust it.
func (s *scene) shown(host string) []byte {
	s.t.Helper()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	c, err := dialer.DialContext(s.ctx, "tcp", host)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	certificate := c.(*tls.Conn).ConnectionState().PeerCertificates[0]
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func TestCommandsAskAHubThatAsksWhoIsThere(t *testing.T) {
	authority := certtest.NewAuthority(t, "hub")
	own := authority.Issue(certtest.Request{Names: []string{"csi-attach-hub.csi-attach-hub.svc"}})
	for _, hub := range []struct {
		name, serverName string
		certificate      func(s *scene) (flags []string)
		ca               func(s *scene, host string) string
	}{
		{"signed", "csi-attach-hub.csi-attach-hub.svc", func(s *scene) []string {
			return []string{"--http-tls-cert=" + s.file("tls.crt", own.CertPEM), "--http-tls-key=" + s.file("tls.key", own.KeyPEM)}
		}, func(s *scene, _ string) string { return s.file("ca.crt", authority.PEM) }},
		{"self-signed", "localhost", func(*scene) []string { return nil }, func(s *scene, host string) string { return s.file("ca.crt", s.shown(host)) }},
	} {
		t.Run(hub.name, func(t *testing.T) {
			s := newScene(t, hub.name)
			driver, socket := s.entry("d")
			s.startDriver(driver, socket)
			process, host := s.startSecuredHub(hub.certificate(s)...)
			trust := []string{"--ca-file", hub.ca(s, host), "--tls-server-name", hub.serverName}
			viewer := s.file("viewer", []byte(s.viewer(hub.name+"-viewer")))
			stranger := s.file("stranger", []byte(s.stranger(hub.name+"-stranger")))
			s.create(s.attachments(driver, 1)...)
			s.waitFor("it is attached", attachedAtLeast(1))
			for _, test := range []struct {
				name   string
				flags  []string
				denied string // the reason; "" if all is shown
			}{
				{"may look", append(slices.Clone(trust), "--token-file", viewer), ""},
				{"may not look", append(slices.Clone(trust), "--token-file", stranger), "403 Forbidden: you need the right to get the nonResourceURL /attach-hub/api/v1/overview"},
				{"says nothing of itself", trust, "401 Unauthorized: give a token of the cluster (Authorization: Bearer ...); --token-file names a file with one"},
				{"does not know the authority", []string{"--token-file", viewer}, "--ca-file must contain the signer"},
			} {
				t.Run(test.name, func(t *testing.T) {
					flags := append([]string{"--server", "https://" + host}, test.flags...)
					out, problems, code := s.ask(append([]string{"status"}, flags...)...)
					if test.denied == "" && (code != 0 || !strings.Contains(out, driver)) || test.denied != "" && (code != 1 || !strings.Contains(problems, test.denied)) {
						t.Errorf("status: exit code %d, want it denied by %q:\n%s%s", code, test.denied, out, problems)
					}
					// The API alone knows that it is attached.
					out, problems, code = s.ask(append([]string{"explain", driver + "-0"}, flags...)...)
					if code != 0 || strings.Contains(out, "Not known") != (test.denied != "") || !strings.Contains(out, test.denied) {
						t.Errorf("explain: exit code %d, want it denied by %q:\n%s%s", code, test.denied, out, problems)
					}
				})
			}
			out, problems, code := s.ask("status", "--server", "http://"+host)
			if code != 1 || !strings.Contains(problems, "400 Bad Request: Client sent an HTTP request to an HTTPS server.") {
				t.Errorf("status without TLS: exit code %d:\n%s%s", code, out, problems)
			}
			s.checkExit(process)
		})
	}
}
