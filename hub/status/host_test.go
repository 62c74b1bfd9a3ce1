package status

import (
	"bufio"
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

func TestOtherMachinesAreServedMetricsAndProbesOnly(t *testing.T) {
	address := startDistant(t, newFakeHub())
	for path, want := range map[string]int{
		"/metrics": http.StatusOK, "/livez": http.StatusOK, "/readyz?verbose": http.StatusOK, "/healthz/leader-election": http.StatusOK,
		"/": http.StatusNotFound, "/attachments": http.StatusNotFound, "/api/v1/drivers": http.StatusNotFound, "/assets/page.js": http.StatusNotFound,
		"/debug/pprof/": http.StatusNotFound, "/debug/pprof/heap": http.StatusNotFound, "/nothing": http.StatusNotFound,
	} {
		// By any name: a Prometheus or a kubelet has no reason to use ours.
		code, body := send(t, address, "GET "+path+" HTTP/1.1\r\nHost: csi-attach-hub.monitoring.example\r\nConnection: close\r\n\r\n")
		if code != want || want == http.StatusNotFound && !strings.Contains(body, "kubectl port-forward") {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

// A connection of HTTP/2 has many requests at once.
func TestHTTP2IsNotSpoken(t *testing.T) {
	for name, address := range map[string]string{
		"loopback": strings.TrimPrefix(startServer(t, newFakeHub()), "http://"), "others": startDistant(t, newFakeHub()),
	} {
		if code, body := send(t, address, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); code < 400 || code >= 500 {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}
