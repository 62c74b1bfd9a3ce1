package status

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// send sends a request as it is written and returns the answer.
func send(t *testing.T, address, request string) (code int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, request)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(all)
}

func TestLoopbackAddressServesNoNameThatAWebsiteCanHave(t *testing.T) {
	allow := func(o *Options) { o.AllowedHosts = []string{"hub.example.com"} }
	address := strings.TrimPrefix(startServer(t, newFakeHub(), allow), "http://")
	for _, path := range []string{"/", "/metrics", "/api/v1/drivers", "/readyz?verbose", "/nothing"} {
		code, body := send(t, address, "GET "+path+" HTTP/1.1\r\nHost: evil.example:8080\r\nConnection: close\r\n\r\n")
		if code != http.StatusMisdirectedRequest || !strings.Contains(body, `evil.example:8080`) || !strings.Contains(body, "--http-allowed-hosts") {
			t.Errorf("%s: %d %s, want 421 with the host and what to do", path, code, body)
		}
	}
	for host, served := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST.": true, "127.0.0.1:8080": true, "10.1.2.3": true, "[::1]:8080": true, "[::1]": true,
		"csi-attach-hub.storage.svc:8080": true, "hub.example.com": true, "Hub.Example.com:443": true,
		"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "evil.example.svc": false,
		"csi-attach-hub.evil.example.svc": false, "csi-attach-hub.svc": false, "x.hub.example.com": false, "2130706433": false, "": false,
	} {
		code, body := send(t, address, "GET /livez HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		if want := map[bool]int{true: http.StatusOK, false: http.StatusMisdirectedRequest}[served]; code != want {
			t.Errorf("host %q: %d %s, want %d", host, code, body, want)
		}
	}
	// The target counts, not the header.
	if code, _ := send(t, address, "GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); code != http.StatusMisdirectedRequest {
		t.Errorf("a target with another host: %d", code)
	}
}

// TestPortForwardToAPublicAddressIsCheckedAndScrapesAreNot asks a server on all addresses: a port-forward reaches it on loopback, Prometheus by
// the Pod's address.
func TestPortForwardToAPublicAddressIsCheckedAndScrapesAreNot(t *testing.T) {
	_, port, err := net.SplitHostPort(strings.TrimPrefix(startServer(t, newFakeHub(), func(o *Options) { o.Endpoint = ":0" }), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	const request = "GET /metrics HTTP/1.1\r\nHost: csi-attach-hub.monitoring.example\r\nConnection: close\r\n\r\n"
	if code, body := send(t, net.JoinHostPort("127.0.0.1", port), request); code != http.StatusMisdirectedRequest {
		t.Errorf("on loopback: %d %s", code, body)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if ip := a.(*net.IPNet).IP; ip.IsGlobalUnicast() && ip.To4() != nil {
			if code, body := send(t, net.JoinHostPort(ip.String(), port), request); code != http.StatusOK {
				t.Errorf("on %s: %d %s", ip, code, body)
			}
			return
		}
	}
	t.Skip("this machine has loopback addresses only")
}

func TestServerWithTLSIsAskedByAnyName(t *testing.T) {
	url := startServer(t, newFakeHub(), func(o *Options) { o.TLS = TLS{SelfSigned: true} })
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https"+strings.TrimPrefix(url, "http")+"/livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "csi-attach-hub.example"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
}
