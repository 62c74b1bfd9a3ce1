package access_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/access"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// token makes a ServiceAccount and a token of it.
func token(t *testing.T, plane *testbed.ControlPlane, name string) string {
	t.Helper()
	accounts := plane.Clientset().CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

func TestOnlyThoseWhomTheClusterAllowsGetThrough(t *testing.T) {
	plane := testbed.Shared(t)
	scraper, stranger := token(t, plane, "scraper"), token(t, plane, "stranger")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if _, err := plane.Clientset().RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "scraper"}}}
	if _, err := plane.Clientset().RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testbed.WaitAllowed(t, plane.Clientset(), authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:scraper",
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}})
	guard := access.New(plane.Clientset().AuthenticationV1(), plane.Clientset().AuthorizationV1())
	server := httptest.NewServer(guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") })))
	t.Cleanup(server.Close)
	for _, test := range []struct {
		name, path, token string
		want              int
	}{
		{"allowed", "/metrics", scraper, http.StatusOK},
		{"allowed, another path", "/api/v1/drivers", scraper, http.StatusForbidden},
		{"allowed, a path that every user may get from kube-apiserver", "/api/v1/drivers", stranger, http.StatusForbidden},
		{"not allowed", "/metrics", stranger, http.StatusForbidden},
		{"no token", "/metrics", "", http.StatusUnauthorized},
		{"made-up token", "/metrics", "made.up.token", http.StatusUnauthorized},
	} {
		t.Run(test.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.token != "" {
				request.Header.Set("Authorization", "Bearer "+test.token)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.want || (test.want == http.StatusOK) != (string(body) == "inside") {
				t.Errorf("%d %q, want %d", response.StatusCode, body, test.want)
			}
			refused := response.StatusCode != http.StatusOK
			if refused != response.Close {
				t.Errorf("%d: the connection is closed: %v", response.StatusCode, response.Close)
			}
			if refused && strings.HasPrefix(test.path, "/api/") {
				var told struct{ Error string }
				if err := json.Unmarshal(body, &told); err != nil || told.Error == "" {
					t.Errorf("a program is told %q, want JSON with an error", body)
				}
			}
			if test.token != "" && strings.Contains(string(body), test.token) {
				t.Error("the token is in the answer")
			}
		})
	}
}

func TestNobodyGetsInWhileTheClusterCannotBeAsked(t *testing.T) {
	for name, answer := range map[string]struct {
		review http.HandlerFunc
		want   int
	}{
		"no reviews": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, http.StatusServiceUnavailable},
		"cut off":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.StatusServiceUnavailable},
		"nothing in it": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}`)
		}, http.StatusUnauthorized},
		"a token that has expired": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"error":"expired"}}`)
		}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(answer.review)
			defer api.Close()
			kube, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
			if err != nil {
				t.Fatal(err)
			}
			guard := access.New(kube.AuthenticationV1(), kube.AuthorizationV1())
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			request.Header.Set("Authorization", "Bearer some.token")
			got := httptest.NewRecorder()
			guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is let in") })).ServeHTTP(got, request)
			if got.Code != answer.want {
				t.Errorf("got %d %s, want %d", got.Code, got.Body, answer.want)
			}
		})
	}
}

func TestOnlyAPlainYesLetsSomebodyIn(t *testing.T) {
	says := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":`+answer+`}`)
		}
	}
	for name, answer := range map[string]struct {
		review http.HandlerFunc
		want   int
	}{
		"yes":            {says(`{"allowed":true}`), http.StatusOK},
		"no":             {says(`{"allowed":false}`), http.StatusForbidden},
		"yes and no":     {says(`{"allowed":true,"denied":true}`), http.StatusForbidden},
		"nothing in it":  {says(`{}`), http.StatusForbidden},
		"an error in it": {says(`{"allowed":false,"evaluationError":"role not found"}`), http.StatusForbidden},
		"no reviews":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, http.StatusServiceUnavailable},
		"cut off":        {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
					io.WriteString(w, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"alice"}}}`)
					return
				}
				answer.review(w, r)
			}))
			defer api.Close()
			kube, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
			if err != nil {
				t.Fatal(err)
			}
			guard := access.New(kube.AuthenticationV1(), kube.AuthorizationV1())
			request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
			request.Header.Set("Authorization", "Bearer some.token")
			got, inside := httptest.NewRecorder(), false
			guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside = true })).ServeHTTP(got, request)
			if got.Code != answer.want || inside != (answer.want == http.StatusOK) {
				t.Errorf("got %d %s, let in: %v, want %d", got.Code, got.Body, inside, answer.want)
			}
		})
	}
}
