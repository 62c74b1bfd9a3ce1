package deploy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// viewer is somebody who wants to look at the hub.
type viewer struct {
	d     *deployed
	token string
}

// newViewer makes a ServiceAccount, and binds a ClusterRole of the manifests to it; "" for
// none.
func (d *deployed) newViewer(name, role string) viewer {
	d.t.Helper()
	name = d.prefix + "-" + name
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := d.client.CoreV1().ServiceAccounts("default").Create(d.ctx, account, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	if role != "" {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}}
		if _, err := d.client.RbacV1().ClusterRoleBindings().Create(d.ctx, binding, metav1.CreateOptions{}); err != nil {
			d.t.Fatal(err)
		}
	}
	return viewer{d, newToken(d, "default", name)}
}

func newToken(d *deployed, namespace, account string) string {
	d.t.Helper()
	request, err := d.client.CoreV1().ServiceAccounts(namespace).CreateToken(d.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return request.Status.Token
}

// clientWith returns a client with a token.
func (d *deployed) clientWith(token string) kubernetes.Interface {
	d.t.Helper()
	config := rest.AnonymousClientConfig(testbed.Shared(d.t).RESTConfig())
	config.BearerToken, config.QPS = token, -1
	return newClient(d.t, config)
}

// waitAllowed waits until the API server's authorizer has seen the binding: the hub
// believes a refusal for a while.
func (v viewer) waitAllowed(url string) {
	v.d.t.Helper()
	client := v.d.clientWith(v.token)
	poll(v.d.ctx, v.d.t, "the viewer may get "+url, func() bool {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: url}}}
		review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(v.d.ctx, review, metav1.CreateOptions{})
		if err != nil {
			v.d.t.Fatal(err)
		}
		return review.Status.Allowed
	})
}

// get asks the hub for a path, and expects a status.
func (v viewer) get(url string, want int) {
	v.d.t.Helper()
	// A certificate that the hub made itself, as Prometheus sees it.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(v.d.ctx, http.MethodGet, url, nil)
	if err != nil {
		v.d.t.Fatal(err)
	}
	if v.token != "" {
		request.Header.Set("Authorization", "Bearer "+v.token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		v.d.t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != want {
		v.d.t.Errorf("%s: %d, want %d", url, response.StatusCode, want)
	}
}

// addresses waits until the hub serves, and returns where everybody may look, and where
// only those who are allowed to.
func (d *deployed) addresses() (open, guarded string) {
	d.t.Helper()
	poll(d.ctx, d.t, "the hub serves two addresses", func() bool {
		lines := bufio.NewScanner(bytes.NewReader(readFile(d.t, d.hub.LogPath())))
		for lines.Scan() {
			var line struct {
				Msg, Address string
				TLS          bool
			}
			if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "Serving HTTP" {
				continue
			}
			_, port, err := net.SplitHostPort(line.Address)
			if err != nil {
				d.t.Fatal(err)
			}
			if line.TLS {
				guarded = "https://127.0.0.1:" + port
			} else {
				open = "http://127.0.0.1:" + port
			}
		}
		return open != "" && guarded != ""
	})
	return open, guarded
}

// look has all kinds of viewers look at the hub, with the roles of the manifests.
func (d *deployed) look() {
	d.t.Helper()
	open, guarded := d.addresses()
	nobody, stranger, viewing := viewer{d: d}, d.newViewer("stranger", ""), d.newViewer("viewer", "csi-attach-hub-viewer")
	prometheus := viewer{d, newToken(d, "csi-attach-hub", "csi-attach-hub-metrics")}
	viewing.waitAllowed("/attach-hub/api/v1/drivers")
	prometheus.waitAllowed("/metrics")

	nobody.get(open+"/api/v1/drivers", http.StatusOK)
	nobody.get(guarded+"/livez", http.StatusOK)
	nobody.get(guarded+"/readyz", http.StatusOK)
	nobody.get(guarded+"/api/v1/drivers", http.StatusUnauthorized)
	stranger.get(guarded+"/api/v1/drivers", http.StatusForbidden)
	viewing.get(guarded+"/api/v1/drivers", http.StatusOK)
	viewing.get(guarded+"/", http.StatusOK)
	viewing.get(guarded+"/metrics", http.StatusOK)
	prometheus.get(guarded+"/metrics", http.StatusOK)
	prometheus.get(guarded+"/api/v1/drivers", http.StatusForbidden)
	log := readFile(d.t, d.hub.LogPath())
	for _, v := range []viewer{stranger, viewing, prometheus} {
		if bytes.Contains(log, []byte(v.token)) {
			d.t.Error("a token is in the log")
		}
	}
}
