package main

import (
	"net/http"
	"testing"
)

func TestLoopbackAddressTakesTheHostsThatAreAllowed(t *testing.T) {
	s := newScene(t, "hosts")
	s.config.Truncate(s.config.Len() - len("drivers:\n"))
	s.config.WriteString("drivers: []\n")
	url := s.startVisibleHub("--http-allowed-hosts=hub.example,other.example")
	for host, want := range map[string]int{"": http.StatusOK, "other.example:8080": http.StatusOK, "evil.example:8080": http.StatusMisdirectedRequest} {
		request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("host %q: %d, want %d", host, response.StatusCode, want)
		}
	}
}
