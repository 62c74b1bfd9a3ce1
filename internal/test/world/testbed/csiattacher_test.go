package testbed

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAGoProxyThatAnswersAnythingIsReachable(t *testing.T) {
	asked := ""
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Path
		http.NotFound(w, r)
	}))
	away := httptest.NewServer(nil)
	away.Close()
	for _, c := range []struct {
		proxies   string
		reachable bool
	}{
		{proxy.URL + ",direct", true},
		{away.URL + "|" + proxy.URL + "/", true},
		{"file:///var/proxy", true},
		{away.URL + ",direct", false},
		{"off", false},
		{"direct", false},
	} {
		err := proxyUnreachable(t.Context(), c.proxies)
		if (err == nil) != c.reachable {
			t.Errorf("%s: %v, want it reachable: %v", c.proxies, err, c.reachable)
		}
		if err != nil && !strings.Contains(err.Error(), c.proxies) {
			t.Errorf("%s: the error does not name it: %v", c.proxies, err)
		}
	}
	secret := strings.Replace(away.URL, "://", "://user:p@ss@", 1)
	if err := proxyUnreachable(t.Context(), "https://token@127.0.0.1:1|"+secret); err == nil || strings.Contains(err.Error(), "ss@") || strings.Contains(err.Error(), "token") || strings.Contains(err.Error(), "user") {
		t.Errorf("the error shows credentials, or there is none: %v", err)
	}
	proxy.Close()
	if want := "/github.com/kubernetes-csi/external-attacher/v4/@v/list"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
}
