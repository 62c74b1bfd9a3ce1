package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// startVisibleHub starts a hub that serves HTTP, with further flags, and returns its address.
func (s *scene) startVisibleHub(args ...string) string {
	s.t.Helper()
	hub := s.startHub(append(args, "--http-endpoint=127.0.0.1:0", "--leader-election-namespace="+metav1.NamespaceDefault)...)
	logged(s, hub, "Serving HTTP")
	log, err := os.ReadFile(hub.LogPath())
	if err != nil {
		s.t.Fatal(err)
	}
	match := regexp.MustCompile(`"Serving HTTP" address="([^"]+)"`).FindSubmatch(log)
	if match == nil {
		s.t.Fatalf("no address in the log:\n%s", log)
	}
	return "http://" + string(match[1])
}

// ask runs a command and returns what it printed and its exit code.
func (s *scene) ask(args ...string) (stdout, stderr string, code int) {
	return s.askAs(s.plane.Kubeconfig(), args...)
}

func (s *scene) askAs(kubeconfig string, args ...string) (stdout, stderr string, code int) {
	var out, problems bytes.Buffer
	code = run(append(args, "--kubeconfig", kubeconfig), &out, &problems)
	return out.String(), problems.String(), code
}

// explained asks until the answer stops where it should: the hub needs time to get there.
func (s *scene) explained(server, about string, want diagnosis.Verdict) (diagnosis.Diagnosis, int) {
	s.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, problems, code := s.ask("explain", about, "-o", "json", "--server", server)
		var r explain.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			s.t.Fatalf("explain %s: %v, exit code %d, stderr %s", about, err, code, problems)
		}
		stop := r.Stop
		if len(r.Volumes) > 0 && r.Volumes[0].Stop != nil {
			stop = r.Volumes[0].Stop
		}
		if stop != nil && stop.Verdict == want {
			return *stop, code
		}
		if stop == nil && want == "" && r.Result == explain.Attached {
			return diagnosis.Diagnosis{}, code
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			s.t.Fatalf("explain %s never came to %q, the last answer:\n%s", about, want, r.Text(statustable.Style{}, true))
		}
	}
}

// volume makes a PersistentVolume of a driver.
func (s *scene) volume(name, driver string, change func(*testbed.PersistentVolume)) {
	pv := testbed.PersistentVolume{Name: name, Driver: driver}
	if change != nil {
		change(&pv)
	}
	s.create(pv)
}

// attach asks for a volume of its own name on a node.
func (s *scene) attach(name, driver, node string) testbed.VolumeAttachment {
	va := testbed.VolumeAttachment{Name: name, Driver: driver, Node: node, PersistentVolume: name}
	s.create(va)
	return va
}

func TestExplainNamesTheCause(t *testing.T) {
	s := newScene(t, "explain")
	kube := s.plane.Clientset()
	good, goodSocket := s.entry("good")
	backend := s.startDriver(good, goodSocket).Backend
	missing, _ := s.entry("missing")
	paused, pausedSocket := s.entry("paused")
	s.config.WriteString("    mode: paused\n")
	s.startDriver(paused, pausedSocket)
	held, heldSocket := s.entry("held")
	s.startDriver(held, heldSocket)
	wrong, wrongSocket := s.entry("wrong")
	s.startDriver("explain-somebody-else", wrongSocket)
	unready, unreadySocket := s.entry("unready")
	s.startDriver(unready, unreadySocket, fakecsi.Knobs{NotReady: new(true)})
	observed, observedSocket := s.entry("observed")
	s.config.WriteString("    mode: observe\n")
	s.startDriver(observed, observedSocket)

	sidecar, lasts, acquired := "sidecar-7", int32(3600), metav1.NowMicro()
	for _, driver := range []string{held, observed} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: registry.LeaseName(driver)},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &sidecar, LeaseDurationSeconds: &lasts, AcquireTime: &acquired, RenewTime: &acquired}}
		if _, err := kube.CoordinationV1().Leases("default").Create(s.ctx, lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]string{}
	for _, driver := range []string{good, missing, paused, held, wrong, unready, observed, "explain-nobodys"} {
		ids[driver] = "id"
	}
	s.create(testbed.Node{Name: "explain-a"}, testbed.Node{Name: "explain-b"},
		testbed.CSINode{Node: "explain-a", Drivers: ids}, testbed.CSINode{Node: "explain-b", Drivers: map[string]string{good: "id-b"}},
		testbed.CSINode{Node: "explain-bare"})
	const hostile = "\x1b[31mno\nsuch\x07 array\u202e"
	if err := backend.Set(fakecsi.Knobs{Fail: []fakecsi.Fault{{Method: fakecsi.ControllerPublishVolume, Volume: "explain-failing", Code: codes.PermissionDenied, Message: hostile}},
		Hang: []fakecsi.Hang{{Method: fakecsi.ControllerUnpublishVolume, Volume: "explain-moving"}, {Method: fakecsi.ControllerPublishVolume, Volume: "explain-slow"}}}); err != nil {
		t.Fatal(err)
	}
	server := s.startVisibleHub()

	for _, tt := range []struct {
		name  string
		make  func() (about string)
		want  diagnosis.Verdict // "" is attached
		words string            // in the finding, "|" between several
	}{
		{"attached", func() string {
			s.volume("explain-attached", good, nil)
			return s.attach("explain-attached", good, "explain-a").Name
		}, "", ""},
		{"not found", func() string { return "explain-no-such" }, diagnosis.ObjectNotFound, "explain-no-such does not exist"},
		{"driver not configured", func() string {
			s.volume("explain-stray", "explain-nobodys", nil)
			return s.attach("explain-stray", "explain-nobodys", "explain-a").Name
		}, diagnosis.DriverNotConfigured, "explain-nobodys|drivers.yaml"},
		{"socket missing", func() string {
			s.volume("explain-missing", missing, nil)
			return s.attach("explain-missing", missing, "explain-a").Name
		}, diagnosis.SocketMissing, filepath.Join(s.dir, "missing") + "|no such file"},
		{"wrong name", func() string {
			s.volume("explain-wrong", wrong, nil)
			return s.attach("explain-wrong", wrong, "explain-a").Name
		}, diagnosis.NameMismatch, "explain-somebody-else"},
		{"not ready", func() string {
			s.volume("explain-unready", unready, nil)
			return s.attach("explain-unready", unready, "explain-a").Name
		}, diagnosis.DriverNotReady, "not ready"},
		{"paused", func() string {
			s.volume("explain-paused", paused, nil)
			return s.attach("explain-paused", paused, "explain-a").Name
		}, diagnosis.DriverPaused, "paused|active"},
		{"observed", func() string {
			s.volume("explain-observed", observed, nil)
			return s.attach("explain-observed", observed, "explain-a").Name
		}, diagnosis.DriverObserved, "sidecar-7"},
		{"lease held by another", func() string {
			s.volume("explain-held", held, nil)
			return s.attach("explain-held", held, "explain-a").Name
		}, diagnosis.LeaseHeld, "another attacher (sidecar-7) for |last renewed"},
		{"node without the driver", func() string {
			s.volume("explain-bare-node", good, nil)
			return s.attach("explain-bare-node", good, "explain-bare").Name
		}, diagnosis.NodeWithoutDriver, "explain-bare|" + good},
		{"node gone", func() string {
			s.volume("explain-no-node", good, nil)
			return s.attach("explain-no-node", good, "explain-gone").Name
		}, diagnosis.NodeMissing, "explain-gone"},
		{"volume missing", func() string { return s.attach("explain-no-volume", good, "explain-a").Name }, diagnosis.VolumeMissing, "explain-no-volume"},
		{"volume being deleted", func() string {
			s.volume("explain-dying", good, nil)
			patch := []byte(`{"metadata":{"finalizers":["example.com/keep"]}}`)
			if _, err := kube.CoreV1().PersistentVolumes().Patch(s.ctx, "explain-dying", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			s.delete(testbed.PersistentVolume{Name: "explain-dying"})
			return s.attach("explain-dying", good, "explain-a").Name
		}, diagnosis.VolumeBeingDeleted, "explain-dying"},
		{"secret missing", func() string {
			s.volume("explain-secret", good, func(pv *testbed.PersistentVolume) {
				pv.Secret = &corev1.SecretReference{Namespace: "default", Name: "explain-credentials"}
			})
			return s.attach("explain-secret", good, "explain-a").Name
		}, diagnosis.SecretMissing, "default/explain-credentials"},
		{"backend error", func() string {
			s.volume("explain-failing", good, nil)
			return s.attach("explain-failing", good, "explain-a").Name
		}, diagnosis.BackendError, "PermissionDenied to ControllerPublishVolume|array|credentials"},
		{"call in flight", func() string {
			s.volume("explain-slow", good, nil)
			return s.attach("explain-slow", good, "explain-a").Name
		}, diagnosis.CallInFlight, "2m"},
		{"waiting for the detach from another node", func() string {
			s.volume("explain-moving", good, nil)
			on := s.attach("explain-moving", good, "explain-a")
			s.waitFor("explain-moving attached", isAttached("explain-moving"))
			s.delete(on)
			on.Name, on.Node = "explain-moving-to", "explain-b"
			s.create(on)
			return on.Name
		}, diagnosis.WaitingForDetach, "explain-a|explain explain-moving"},
		{"detaching", func() string { return "explain-moving" }, diagnosis.CallInFlight, "Wait for the answer of the driver."},
		{"attached elsewhere", func() string {
			on := testbed.VolumeAttachment{Name: "explain-second", Driver: good, Node: "explain-b", PersistentVolume: "explain-attached"}
			s.create(on)
			return on.Name
		}, diagnosis.AttachedElsewhere, "explain-a|Multi-Attach"},
		{"volume that nobody wants", func() string { s.volume("explain-idle", good, nil); return "pv/explain-idle" }, diagnosis.NotWanted, "explain-idle"},
		{"pod that has no node", func() string {
			s.create(testbed.Pod{Name: "explain-nowhere", Claims: []string{"explain-none"}})
			return "pod/default/explain-nowhere"
		}, diagnosis.PodNotScheduled, "default/explain-nowhere"},
		{"pod whose claim is missing", func() string {
			s.create(testbed.Pod{Name: "explain-unserved", Node: "explain-a", Claims: []string{"explain-none"}})
			return "pod/default/explain-unserved"
		}, diagnosis.ClaimMissing, "default/explain-none"},
		{"claim that is not bound", func() string {
			s.create(testbed.PersistentVolumeClaim{Name: "explain-pending", PersistentVolume: "explain-x"})
			return "pvc/default/explain-pending"
		}, diagnosis.ClaimNotBound, "Pending"},
		{"pod that nobody has asked for yet", func() string {
			s.claimed("explain-early", good)
			return "pod/default/explain-early"
		}, diagnosis.NotAskedYet, "explain-a|kube-controller-manager"},
		{"pod whose volume is attached", func() string {
			s.claimed("explain-pod", good)
			s.attach("explain-pod", good, "explain-a")
			return "pod/default/explain-pod"
		}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stop, code := s.explained(server, tt.make(), tt.want)
			wantCode := 1
			switch tt.want {
			case "", diagnosis.DriverPaused, diagnosis.NotWanted:
				wantCode = 0
			case diagnosis.ObjectNotFound:
				wantCode = 2
			}
			if code != wantCode {
				t.Errorf("the exit code is %d, want %d", code, wantCode)
			}
			for word := range strings.SplitSeq(tt.words, "|") {
				if text := stop.Object + " " + stop.Text(time.Now()) + " " + strings.Join(stop.Actions, " "); !strings.Contains(text, word) {
					t.Errorf("%q is not in %q", word, text)
				}
			}
		})
	}

	t.Run("nothing hostile reaches the terminal", func(t *testing.T) {
		for _, args := range [][]string{{"explain", "explain-failing"}, {"explain", "explain-failing", "-o", "json"}, {"status", "-o", "json"}} {
			out, problems, _ := s.ask(append(args, "--server", server)...)
			if !strings.Contains(out, "array") {
				t.Errorf("%v does not show the error:\n%s%s", args, out, problems)
			}
			for _, r := range out {
				if r != '\n' && !unicode.IsGraphic(r) {
					t.Errorf("%v prints %q", args, r)
				}
			}
		}
	})

	t.Run("without a hub", func(t *testing.T) {
		nowhere := "http://127.0.0.1:1"
		for about, want := range map[string]diagnosis.Verdict{
			"explain-attached":  "",
			"explain-failing":   diagnosis.BackendError,
			"explain-bare-node": diagnosis.NodeWithoutDriver,
			"explain-secret":    diagnosis.SecretMissing,
			"explain-stray":     diagnosis.LeaseMissing,
		} {
			s.explained(nowhere, about, want)
		}
		out, _, code := s.ask("explain", "explain-failing", "--server", nowhere)
		if code != 1 || !strings.Contains(out, "Not known:") || !strings.Contains(out, "connection refused") {
			t.Errorf("exit code %d, want 1, and what is not known said:\n%s", code, out)
		}
	})

	t.Run("status", func(t *testing.T) {
		out, problems, code := s.ask("status", "--server", server)
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, problems)
		}
		t.Logf("\n%s", out)
		for _, want := range []string{`(?m)^DRIVER +HEALTH +STATE +LEADER +WAITING +RUNNING +FAILING +STUCK +OLDEST +REASON$`,
			`(?m)^explain-good +attention +Ready +\S+ `, `(?m)^explain-missing +broken +Connecting .*no such file`, `(?m)^explain-held +attention +WaitingForLease +sidecar-7 `,
			`(?m)^  explain-nobodys: 1$`} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("no line matches %s in\n%s", want, out)
			}
		}
		out, _, _ = s.ask("status", "--server", server, "-o", "json")
		var v hubclient.View
		if err := json.Unmarshal([]byte(out), &v); err != nil {
			t.Fatal(err)
		}
		if d := v.Driver(good); d == nil || !d.Lease.Mine || d.Leader == "" || len(v.Drivers) != len(s.drivers) {
			t.Errorf("the JSON has %d drivers, want %d, and who leads:\n%s", len(v.Drivers), len(s.drivers), out)
		}
	})
	if err := backend.Set(fakecsi.Knobs{ReleaseAll: true}); err != nil {
		t.Fatal(err)
	}
}

// claimed makes a Pod on node explain-a with a claim that is bound to a volume of
// the driver; there is no controller that would bind it.
func (s *scene) claimed(name, driver string) {
	s.t.Helper()
	s.volume(name, driver, func(pv *testbed.PersistentVolume) { pv.Claim = name })
	s.claim(name, "explain-a")
}

// claim makes a claim that is bound to the volume of its name, and its Pod on a node.
func (s *scene) claim(name, node string) {
	s.t.Helper()
	s.create(testbed.PersistentVolumeClaim{Name: name, PersistentVolume: name}, testbed.Pod{Name: name, Node: node, Claims: []string{name}})
	patch := []byte(`{"status":{"phase":"Bound"}}`)
	_, err := s.plane.Clientset().CoreV1().PersistentVolumeClaims("default").Patch(s.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		s.t.Fatal(err)
	}
}

func isAttached(name string) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool {
		return slices.ContainsFunc(all, func(va *storagev1.VolumeAttachment) bool { return va.Name == name && va.Status.Attached })
	}
}

// mayExplain are the rights that explain needs, as deploy/OPERATE.md says.
var mayExplain = []rbacv1.PolicyRule{
	{APIGroups: []string{""}, Resources: []string{"pods", "persistentvolumeclaims", "persistentvolumes", "nodes"}, Verbs: []string{"get", "list"}},
	{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments", "csinodes", "csidrivers", "storageclasses"}, Verbs: []string{"get", "list"}},
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}},
}

// kubeconfigFor writes one for a user with no rights but these.
func (s *scene) kubeconfigFor(user string, rules []rbacv1.PolicyRule) string {
	s.t.Helper()
	rbac := s.plane.Clientset().RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}}
	_, roleErr := rbac.ClusterRoles().Create(s.ctx, role, metav1.CreateOptions{})
	_, bindingErr := rbac.ClusterRoleBindings().Create(s.ctx, binding, metav1.CreateOptions{})
	config, err := clientcmd.LoadFromFile(s.plane.Kubeconfig())
	if err := errors.Join(roleErr, bindingErr, err); err != nil {
		s.t.Fatal(err)
	}
	if len(rules) > 0 {
		testbed.WaitAllowed(s.t, s.plane.Clientset(), authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: rules[0].Resources[0]}})
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	path := filepath.Join(s.dir, user)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func TestExplainNeedsTheRightsThatAreDocumentedAndNoSecret(t *testing.T) {
	s := newScene(t, "rights")
	s.create(testbed.Node{Name: "rights-a"}, testbed.CSINode{Node: "rights-a", Drivers: map[string]string{"rights-d": "id"}})
	s.volume("rights-pod", "rights-d", func(pv *testbed.PersistentVolume) {
		pv.Claim, pv.Secret = "rights-pod", &corev1.SecretReference{Namespace: "default", Name: "rights-secret"}
	})
	s.create(testbed.Secret{Name: "rights-secret", Data: map[string]string{"password": "hidden"}})
	s.claim("rights-pod", "rights-a")
	s.attach("rights-pod", "rights-d", "rights-a")
	nobody := s.kubeconfigFor("rights-nobody", nil)
	if out, problems, code := s.askAs(nobody, "explain", "pod/default/rights-pod"); code != 3 || !strings.Contains(problems, "forbidden") {
		t.Errorf("without rights: exit code %d, want 3:\n%s%s", code, out, problems)
	}
	out, problems, code := s.askAs(s.kubeconfigFor("rights-explainer", mayExplain), "explain", "pod/default/rights-pod", "-o", "json")
	var r explain.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 1 {
		t.Fatalf("exit code %d, want 1: %v\n%s%s", code, err, out, problems)
	}
	for _, unknown := range r.Unknown {
		if strings.Contains(unknown, "forbidden") {
			t.Errorf("with the documented rights it is not known %s", unknown)
		}
	}
	if len(r.Unknown) != 1 || r.Volumes[0].Stop.Verdict != diagnosis.LeaseMissing {
		t.Errorf("want the hub not known, and a stop for want of a lease:\n%s", r.Text(statustable.Style{}, true))
	}
	if out, _, _ := s.ask("explain", "pod/default/rights-pod", "-o", "json"); strings.Contains(out, "aGlkZGVu") || strings.Contains(out, "hidden") || strings.Contains(out, "rights-secret") {
		t.Errorf("the secret exists, and is spoken of:\n%s", out)
	}
}

func TestWhatCannotBeAskedEndsWithAnErrorThatSaysWhatWasTried(t *testing.T) {
	s := newScene(t, "ask")
	for _, tt := range []struct {
		args  []string
		code  int
		words string
	}{
		{[]string{"status", "--server", "http://127.0.0.1:1"}, 3, "http://127.0.0.1:1|connection refused"},
		{[]string{"status", "--server", "127.0.0.1:1"}, 2, "127.0.0.1:1|http://host:port"},
		{[]string{"status"}, 3, "csi-attach-hub|app.kubernetes.io/name=csi-attach-hub|--server"},
		{[]string{"status", "-o", "yaml"}, 2, "yaml|json"},
		{[]string{"explain", "secret/a"}, 2, "secret|pv NAME"},
		{[]string{"explain"}, 2, "arg(s)"},
		{[]string{"explain", "a", "--no-such-flag"}, 2, "no-such-flag"},
		{[]string{"explain", "no-such"}, 2, ""},
	} {
		out, problems, code := s.ask(tt.args...)
		if code != tt.code {
			t.Errorf("%v: exit code %d, want %d:\n%s%s", tt.args, code, tt.code, out, problems)
		}
		for word := range strings.SplitSeq(tt.words, "|") {
			if !strings.Contains(problems, word) {
				t.Errorf("%v: %q is not in %q", tt.args, word, problems)
			}
		}
	}
}
