package deploy_test

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// recorder stands between a hub and the API server, and notes which rights the requests
// needed, and which were refused.
type recorder struct {
	url       string
	authority []byte // PEM; signed the certificate

	mu      sync.Mutex
	used    map[string]bool // rights as Right.String has them; guarded by mu
	refused map[string]bool // likewise
	flows   map[string]flow // of the last request for each right; guarded by mu
	changed chan struct{}   // closed and made anew at each change; guarded by mu
}

func startRecorder(t *testing.T) *recorder {
	t.Helper()
	config := testbed.Shared(t).RESTConfig()
	// The hub's own token goes through; of the administrator only the authority is taken.
	tls, err := rest.TLSConfigFor(rest.AnonymousClientConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{used: map[string]bool{}, refused: map[string]bool{}, flows: map[string]flow{}, changed: make(chan struct{})}
	// With TLS: client-go sends no token without.
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport:      &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true},
		FlushInterval:  -1, // watches
		ModifyResponse: func(answer *http.Response) error { r.note(answer); return nil },
		ErrorLog:       log.New(io.Discard, "", 0), // of watches that were cut off
	})
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	r.url, r.authority = server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return r
}

func (r *recorder) note(answer *http.Response) {
	right := rightOf(answer.Request)
	if right == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used[right], r.flows[right] = true, flowOf(answer)
	if answer.StatusCode == http.StatusForbidden {
		r.refused[right] = true
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

var requests = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// rightOf says what a request to the API needs, in the words of rights.Right. "" is for
// what everybody may do.
func rightOf(r *http.Request) string {
	info, err := requests.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest || info.Resource == "selfsubjectaccessreviews" {
		return ""
	}
	resource, name := info.Resource, ""
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	// Rights on Secrets and on the leases of drivers are by name.
	if resource == "secrets" || resource == "leases" && info.Namespace != "csi-attach-hub" {
		name = info.Name
	}
	return inWords(info.Verb, info.APIGroup, resource, name, info.Namespace)
}

// wait blocks until it holds of what was used and what was refused.
func (r *recorder) wait(ctx context.Context, t *testing.T, what string, holds func(used, refused map[string]bool) bool) {
	t.Helper()
	for {
		r.mu.Lock()
		ok, changed := holds(r.used, r.refused), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			used, refused := r.state()
			t.Fatalf("it never came to this: %s\nused: %s\nrefused: %s", what, strings.Join(used, ", "), strings.Join(refused, ", "))
		}
	}
}

func (r *recorder) waitUsed(ctx context.Context, t *testing.T, rights ...string) {
	t.Helper()
	r.wait(ctx, t, "used: "+strings.Join(rights, ", "), func(used, _ map[string]bool) bool {
		return !slices.ContainsFunc(rights, func(right string) bool { return !used[right] })
	})
}

// state returns what was used and what was refused.
func (r *recorder) state() (used, refused []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.used)), slices.Sorted(maps.Keys(r.refused))
}

// kubeconfig writes one that leads here.
func (r *recorder) kubeconfig(t *testing.T, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: r.url, CertificateAuthorityData: r.authority}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
