package main

import (
	"crypto/tls"
	"net/http"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestOthersThanTheClusterAllowsSeeTheProbesOnly(t *testing.T) {
	s := newScene(t, "access")
	driver, socket := s.entry("d")
	s.startDriver(driver, socket)
	hub, host := s.startSecuredHub()
	token := s.viewer("access-viewer")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // self-signed
	for _, test := range []struct {
		path, token string
		want        int
	}{
		{"/livez", "", http.StatusOK},
		{"/metrics", "", http.StatusUnauthorized},
		{"/api/v1/drivers", "", http.StatusUnauthorized},
		{"/", "", http.StatusUnauthorized},
		{"/metrics", token, http.StatusForbidden},
		{"/api/v1/drivers", token, http.StatusOK},
	} {
		request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "https://"+host+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if test.token != "" {
			request.Header.Set("Authorization", "Bearer "+test.token)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != test.want {
			t.Errorf("%s, with a token %t: %d, want %d", test.path, test.token != "", response.StatusCode, test.want)
		}
	}
	s.checkExit(hub)
}

func TestLoopbackAddressTakesTheHostsThatAreAllowed(t *testing.T) {
	s := newScene(t, "hosts")
	s.config.Truncate(s.config.Len() - len("drivers:\n"))
	s.config.WriteString("drivers: []\n")
	url := s.startVisibleHub("--http-allowed-hosts=hub.example,other.example")
	for host, want := range map[string]int{"": http.StatusOK, "other.example:8080": http.StatusOK, "evil.example:8080": http.StatusMisdirectedRequest} {
		request, err := http.NewRequestWithContext(s.ctx, http.MethodGet, url+"/api/v1/drivers", nil)
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

// viewer makes a ServiceAccount that may see all of a hub but its metrics, and returns a
// token of it.
func (s *scene) viewer(name string) string {
	s.t.Helper()
	client := s.plane.Clientset()
	token := s.stranger(name)
	_, err := client.RbacV1().ClusterRoles().Create(s.ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/attach-hub/*"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(s.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	testbed.WaitAllowed(s.t, client, authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:" + name,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/attach-hub/api/v1/drivers", Verb: "get"}})
	return token
}
