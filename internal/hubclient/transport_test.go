package hubclient

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestATokenIsShownOverVerifiedTLSOnly(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error": "who is there? %s"}`, got)
			return
		}
		fmt.Fprint(w, `{"identity": "id", "drivers": []}`)
	})
	secure, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	defer secure.Close()
	defer plain.Close()
	ca := write(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	token := write(t, "token", []byte("s3cret\n"))
	for _, tt := range []struct {
		name   string
		server string
		o      TransportOptions
		want   string // in the error, "" for an answer
	}{
		{"token over TLS", secure.URL, TransportOptions{TokenFile: token, CAFile: ca}, ""},
		{"its certificate has another name", secure.URL, TransportOptions{TokenFile: token, CAFile: ca, ServerName: "example.com"}, ""},
		{"no token", secure.URL, TransportOptions{CAFile: ca}, "401 Unauthorized: who is there?; --token-file"},
		{"no token, not verified", secure.URL, TransportOptions{Insecure: true}, "401 Unauthorized: who is there?"},
		{"not verified", secure.URL, TransportOptions{TokenFile: token, Insecure: true}, "--ca-file"},
		{"authority not known", secure.URL, TransportOptions{TokenFile: token}, "--ca-file"},
		{"another name than the certificate's", secure.URL, TransportOptions{TokenFile: token, CAFile: ca, ServerName: "other.test"}, "other.test"},
		{"token without TLS", plain.URL, TransportOptions{TokenFile: token}, "over TLS only"},
		{"no such token", secure.URL, TransportOptions{TokenFile: "/no/such/file"}, "/no/such/file"},
		{"no certificate in the file", secure.URL, TransportOptions{CAFile: token}, "no certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			h, err := Find(t.Context(), Options{Server: tt.server, Transport: tt.o})
			if err != nil {
				got = err.Error()
			} else {
				defer h.Close()
				v := h.View(t.Context())
				if got = v.Replicas[0].Error; v.Reached() != (got == "") {
					t.Errorf("reached is %v with error %q", v.Reached(), got)
				}
			}
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("the error is %q, want %q in it", got, tt.want)
			}
			if strings.Contains(got, "s3cret") {
				t.Errorf("the token is in the error %q", got)
			}
		})
	}
}

func TestWhatIsNoHubIsSaidToBeNone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved/api/v1/overview":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case r.URL.Path == "/there/api/v1/overview" || r.URL.Path == "/there/api/v1/drivers":
			fmt.Fprint(w, "{}")
		case strings.HasPrefix(r.URL.Path, "/page/"):
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<html>hello</html>")
		case strings.HasPrefix(r.URL.Path, "/text/"):
			http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		default:
			fmt.Fprint(w, "<html>hello</html>")
		}
	}))
	defer server.Close()
	for path, want := range map[string]string{"": "does not answer as a csi-attach-hub", "/moved": "302 Found", "/there/": "",
		"/page": "502 Bad Gateway", "/text": "400 Bad Request: Client sent an HTTP request to an HTTPS server."} {
		h, err := Find(t.Context(), Options{Server: server.URL + path})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if got := h.View(t.Context()).Replicas[0].Error; (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "<html>") {
			t.Errorf("%q: the error is %q, want %q in it", path, got, want)
		}
	}
}

func TestAddressesThatAreNone(t *testing.T) {
	for _, server := range []string{"127.0.0.1:8080", "localhost", "ftp://a", "http://", "http://u:p@a", "http://a?b", "http://a#b", "http://a b"} {
		if _, err := Find(t.Context(), Options{Server: server}); err == nil || !strings.Contains(err.Error(), "http://host:port") {
			t.Errorf("%q: the error is %v, want one that says what to write", server, err)
		}
	}
}
