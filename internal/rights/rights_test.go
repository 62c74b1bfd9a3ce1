package rights_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// full is a hub that does everything.
var full = rights.Features{Leases: []rights.Lease{{Namespace: "driver", Name: "lease"}, {Namespace: "hub", Name: "other"}}, ReplicaNamespace: "hub", Discovery: true}

// user returns a client of somebody who may do this, in every namespace.
func user(t *testing.T, name string, granted []rights.Right) kubernetes.Interface {
	t.Helper()
	plane := testbed.Shared(t)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, r := range granted {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{resource}, Verbs: []string{r.Verb}}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		role.Rules = append(role.Rules, rule)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}}
	client := plane.Clientset().RbacV1()
	if _, err := client.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(granted) > 0 {
		last := granted[len(granted)-1]
		testbed.WaitAllowed(t, plane.Clientset(), authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: last.Verb, Group: last.Group, Resource: last.Resource, Subresource: last.Subresource, Name: last.Name}})
	}
	config := plane.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return kube
}

func TestNothingIsMissingWhereAllIsGranted(t *testing.T) {
	needed := rights.Needed(full)
	missing, err := rights.Missing(t.Context(), user(t, "all", needed).AuthorizationV1(), needed)
	if err != nil || len(missing) > 0 {
		t.Errorf("missing %v, %v", missing, err)
	}
}

func TestEachRightThatIsMissingIsFoundAlone(t *testing.T) {
	// All of one lease, and no more of others.
	needed := rights.Needed(rights.Features{Leases: full.Leases[:1], Discovery: true})
	for i, r := range needed {
		rest := slices.Concat(needed[:i], needed[i+1:])
		missing, err := rights.Missing(t.Context(), user(t, "without-"+strings.ToLower(strings.NewReplacer(" ", "-", "/", "-").Replace(r.String())), rest).AuthorizationV1(), needed)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(missing, []rights.Right{r}) {
			t.Errorf("without %s: missing %v", r, missing)
		}
	}
}

func TestEachMissingRightIsALineWithWhatGivesIt(t *testing.T) {
	var granted []rights.Right
	for _, r := range rights.Needed(full) {
		switch r.String() {
		case "patch volumeattachments/status.storage.k8s.io", "get csinodes.storage.k8s.io", "get nodes":
		default:
			granted = append(granted, r)
		}
	}
	log := watched(t, user(t, "some", granted), full)
	lines := strings.Split(strings.TrimSpace(log), "\n")
	for i, right := range []string{"patch volumeattachments/status.storage.k8s.io", "get csinodes.storage.k8s.io", "get nodes"} {
		severity := map[bool]string{true: "I", false: "E"}[right == "get nodes"]
		if want := fmt.Sprintf(`right=%q see="deploy/install.yaml"`, right); len(lines) != 3 || !strings.HasPrefix(lines[i], severity) || !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d of three should have severity %s and end with %s:\n%s", i, severity, want, log)
		}
	}
	if log := watched(t, user(t, "everything", rights.Needed(full)), full); log != "" {
		t.Errorf("nothing is missing, and it says:\n%s", log)
	}
}

// watched returns what Watch logs.
func watched(t *testing.T, kube kubernetes.Interface, f rights.Features) string {
	t.Helper()
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(0)))
	rights.Watch(klog.NewContext(t.Context(), logger), kube.AuthorizationV1(), f)
	return log.String()
}

func TestItIsAskedAgainUntilThereIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube, back := fake.NewClientset(), time.Now().Add(15*time.Second)
		kube.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
			if time.Now().Before(back) {
				return true, nil, errors.New("away")
			}
			return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
		})
		rights.Watch(t.Context(), kube.AuthorizationV1(), rights.Features{})
		if time.Now().Before(back) {
			t.Error("it gave up without an answer")
		}
		ctx, cancel := context.WithCancel(t.Context())
		back = time.Now().Add(time.Hour)
		go func() { synctest.Wait(); cancel() }()
		rights.Watch(ctx, kube.AuthorizationV1(), rights.Features{})
		if !time.Now().Before(back) {
			t.Error("the end of the context does not end it")
		}
	})
}
