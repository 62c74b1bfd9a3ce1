package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// checks returns the checklist of the driver by name.
func (v *virtual) checks() map[string]status.Check {
	v.t.Helper()
	checks := map[string]status.Check{}
	for _, c := range v.hub.Checklist(v.ctx, virtualDriver) {
		checks[c.Name] = c
	}
	return checks
}

func openNames(checks map[string]status.Check) (open []string) {
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if !checks[name].OK {
			open = append(open, name)
		}
	}
	return open
}

func TestChecklistOfADriverInAnyModeSaysWhatIsMissing(t *testing.T) {
	for _, mode := range []registry.Mode{registry.ModeActive, registry.ModePaused, registry.ModeObserve} {
		inVirtualTime(t, func(v *virtual) {
			v.leased()
			v.driver.Mode = mode
			var granted atomic.Bool
			v.options.Rights = func(_ context.Context, l lease.Name) ([]rights.Right, error) {
				if l.Namespace != "hub" {
					t.Errorf("asked about the lease %+v", l)
				}
				if granted.Load() {
					return nil, nil
				}
				return []rights.Right{{Verb: "patch", Resource: "persistentvolumes", Manifest: "the chart"}}, nil
			}
			v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Secret: &corev1.SecretReference{Namespace: "storage", Name: "creds"}})
			v.create(testbed.PersistentVolume{Name: "w", Driver: "other", Secret: &corev1.SecretReference{Namespace: "storage", Name: "others"}})
			v.create(testbed.Node{Name: "n"}, v.attachment("v", "n"))
			v.start()
			v.pass(time.Second)
			checks := v.checks()
			want, open := []string{"capabilities", "endpoint", "lease", "name", "node IDs", "rights", "secrets"}, []string{"node IDs", "rights", "secrets"}
			if mode == registry.ModeObserve {
				want, open = append([]string{"capabilities", "decisions"}, want[1:]...), append([]string{"decisions", "lease"}, open...)
			}
			if names := slices.Sorted(maps.Keys(checks)); !slices.Equal(names, want) || !slices.Equal(openNames(checks), open) {
				t.Fatalf("%s: checks %v, open %v, want %v, open %v", mode, names, openNames(checks), want, open)
			}
			for name, words := range map[string]string{"node IDs": "for example nCheck that node n exists", "rights": "patch persistentvolumes", "secrets": "1 of 1 cannot be read, for example storage/creds"} {
				if c := checks[name]; !strings.Contains(c.Text+strings.Join(c.Actions, " "), words) || len(c.Actions) == 0 {
					t.Errorf("%s: %+v, want %q and an action", mode, c, words)
				}
			}
			v.register("n", "id-n")
			v.create(testbed.Secret{Namespace: "storage", Name: "creds", Data: map[string]string{"password": "hush"}})
			granted.Store(true)
			v.pass(2 * time.Minute)
			if now := openNames(v.checks()); mode == registry.ModeActive && len(now) > 0 || slices.ContainsFunc(now, func(name string) bool { return slices.Contains(open[len(open)-3:], name) }) {
				t.Errorf("%s: all is granted, and open are %v", mode, now)
			}
		})
	}
}

func TestLookingAgainAtAChecklistAsksNothingForSomeSeconds(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		var asked atomic.Int32
		v.options.Rights = func(context.Context, lease.Name) ([]rights.Right, error) {
			asked.Add(1)
			return nil, nil
		}
		v.start()
		for looks := range int32(3) {
			v.pass(time.Minute)
			v.checks()
			v.checks()
			if n := asked.Load(); n != looks+1 {
				t.Errorf("asked %d times in %d minutes", n, looks+1)
			}
		}
		if got := v.hub.Checklist(t.Context(), "nobody"); got != nil {
			t.Errorf("an unknown driver has %+v", got)
		}
	})
}

// The socket of a node plugin answers under the right name.
func TestChecklistIsOpenForADriverThatWasCalledAndHasNoCapability(t *testing.T) {
	type row struct {
		called, capable, noAttach bool
		ok                        bool
		words                     string
	}
	eachInVirtualTime(t, map[string]row{
		"never called":  {ok: true, words: "marked attached without a call"},
		"called before": {called: true, words: "no CONTROLLER_SERVICE, but 1 VolumeAttachments have the finalizer or the node ID"},
		"can be called": {called: true, capable: true, ok: true, words: "PUBLISH_UNPUBLISH_VOLUME"},
		"no attach":     {capable: true, noAttach: true, words: "nothing to attach"},
	}, func(v *virtual, c row) {
		v.driver.Mode = registry.ModeObserve
		if !c.capable {
			v.incapable()
		}
		v.withNode("v")
		va := v.attachment("v", "n").Build()
		if c.called {
			va.Finalizers = []string{"external-attacher/virtual-example-com"}
		}
		v.write(va)
		if c.noAttach {
			v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: true})
		}
		v.start()
		v.pass(time.Second)
		if got := v.checks()["capabilities"]; got.OK != c.ok || !strings.Contains(got.Text, c.words) || got.OK != (len(got.Actions) == 0) {
			v.t.Errorf("%+v", got)
		}
	})
}

// readOnly lets requests pass that change nothing but events and leases.
type readOnly struct {
	next http.RoundTripper
	t    *testing.T
}

func (r readOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && !strings.Contains(request.URL.Path, "/leases") {
		r.t.Errorf("an observer has said %s %s", request.Method, request.URL.Path)
	}
	return r.next.RoundTrip(request)
}

// observer starts a hub that observes the driver, and that fails the test if it writes or calls. The driver's lease is held by
// who calls itself "attacher-0".
func (v *virtual) observer() {
	v.t.Helper()
	v.options.Kube = v.through(readOnly{v.api, v.t})
	v.connect = func(_ context.Context, _ int, s *backendSession) error {
		s.around = func(ctx context.Context, c sessionCall, call func(context.Context) error) error {
			if c.method == publish || c.method == unpublish {
				v.t.Errorf("an observer has called %+v", c)
			}
			return call(ctx)
		}
		return nil
	}
	v.driver.Mode = registry.ModeObserve
	v.start()
	v.pass(time.Minute)
}

func TestTwoHundredAttachmentsOfAnotherAttacherAreObservedAndAgreedOn(t *testing.T) {
	const n = 200
	inVirtualTime(t, func(v *virtual) {
		v.leasedAs("attacher-0")
		v.register("n", "id-n")
		v.secret("first", "hush-hush")
		v.start()
		v.pass(time.Minute)
		v.leasedAs("observer-0")
		v.observer()
		var vas []testbed.VolumeAttachment
		for i := range n {
			pv := testbed.PersistentVolume{Name: fmt.Sprint("v", i), Driver: virtualDriver}
			if i%10 == 0 {
				pv.Secret = secretRef("first")
			}
			v.create(pv)
			vas = append(vas, v.attachment(pv.Name, "n"))
		}
		check := func(agreed int) {
			t.Helper()
			v.pass(2 * time.Minute)
			d := v.status()
			if o := d.Observed; o == nil || o.Agreed != agreed || o.WouldHaveFailed+o.Differs+o.Pending > 0 || len(o.Disagreements) > 0 {
				t.Errorf("observed %+v, want %d agreed on and nothing else", o, agreed)
			}
			if open := openNames(v.checks()); len(open) > 0 {
				t.Errorf("open checks: %v", open)
			}
			if d.State != status.StateReady || d.Mode != "observe" || d.Lease.Mine || d.Lease.Holder != "attacher-0" {
				t.Errorf("shown as %+v", d)
			}
		}
		v.createAll(vas)
		check(n)
		v.deleteAll(vas)
		check(2 * n)
		if p, u := v.begun(publish), v.begun(unpublish); p != n || u != n {
			t.Errorf("%d publishes and %d unpublishes, want %d of each", p, u, n)
		}
		v.wantNothingAttached()
	})
}

func TestWhatTheHubCouldNotHaveDoneIsShownByReasonAndWithoutSecrets(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		for _, node := range []string{"same", "other", "none"} {
			v.register(node, "id-"+node)
		}
		for _, name := range []string{"known", "unreadable", "missing"} {
			v.secret(name, "hush-hush")
		}
		var all []testbed.VolumeAttachment
		for _, c := range []struct{ name, node, secret string }{{"fine", "same", ""}, {"with-secret", "same", "known"}, {"elsewhere", "other", ""},
			{"unnamed", "none", ""}, {"unreadable", "same", "unreadable"}, {"missing", "same", "missing"}} {
			pv := testbed.PersistentVolume{Name: c.name, Driver: virtualDriver}
			if c.secret != "" {
				pv.Secret = secretRef(c.secret)
			}
			v.create(pv)
			all = append(all, v.attachment(c.name, c.node))
		}
		stop := v.start()
		v.createAll(all)
		v.pass(time.Second)
		stop()
		// What has changed since is not wrong for the other attacher: it has done its work.
		v.register("other", "id-elsewhere")
		v.delete(testbed.CSINode{Node: "none"}, testbed.Secret{Name: "missing"})
		v.create(testbed.CSINode{Node: "none", Drivers: map[string]string{"another.driver": "id"}})
		v.reply(http.StatusForbidden, func(r fakekube.Request) bool { return reads("secrets")(r) && r.Name == "unreadable" })
		v.observer()
		d := v.status()
		found := map[string]status.Disagreement{}
		for _, x := range d.Observed.Disagreements {
			found[x.VolumeAttachment] = x
		}
		if got := found["elsewhere-other"]; got.Agreement != status.Differs || !strings.Contains(got.Reason, `node ID is "id-other", the hub would have used "id-elsewhere"`) {
			t.Errorf("another node ID: %+v", got)
		}
		if got := found["unnamed-none"]; got.Agreement != status.WouldHaveFailed || !strings.Contains(got.Reason, "none") {
			t.Errorf("no node ID: %+v", got)
		}
		if len(found) != 2 || d.Observed.Agreed != 4 {
			t.Errorf("observed %+v, want 2 disagreements and 4 agreed on", d.Observed)
		}
		for name, want := range map[string]string{"node IDs": "1 of 3 nodes", "secrets": "2 of 3 cannot be read", "decisions": "4 agreed"} {
			if c := v.checks()[name]; c.OK || !strings.Contains(c.Text, want) {
				t.Errorf("%+v, want it open with %q", c, want)
			}
		}
		shown, err := json.Marshal(d)
		if log := v.log.String(); err != nil || strings.Contains(string(shown)+log, "hush-hush") || !strings.Contains(log, `state="Ready" mode="observe"`) {
			t.Errorf("%v, a secret is shown or logged, or the log was not kept: %s", err, log)
		}
	})
}

// Each Probe that failed had all VolumeAttachments compared again, and their objects read.
func TestObservedDriverThatIsNotReadyCostsNoReads(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Mode = registry.ModeObserve
		v.register("n", "id-n")
		v.create(v.attachment("gone", "n"))
		v.start()
		reads := func(hour func()) int {
			before := v.api.Count("get", "persistentvolumes")
			hour()
			v.pass(time.Hour)
			return v.api.Count("get", "persistentvolumes") - before
		}
		v.pass(time.Hour) // the VolumeAttachment is tried with its longest backoff
		well := reads(func() {})
		notReady := true
		if got := reads(func() { v.setKnobs(fakecsi.Knobs{NotReady: &notReady}) }); got > well+1 {
			t.Errorf("%d reads in an hour in which the driver is not ready, %d in one in which it is", got, well)
		}
	})
}

func TestHealthOfAnObservedDriverSaysThatNobodyHoldsItsLease(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.driver.Mode = registry.ModeObserve
		v.withNode("a")
		v.start()
		v.create(v.attachment("a", "n"))
		v.pass(2 * time.Minute)
		if h := v.health(); h.State != status.Attention || !strings.Contains(h.Reasons[0].Text(time.Now()), "its lease has no holder") {
			t.Errorf("%+v of %+v", h, v.status().Lease)
		}
	})
}

// The first view of a driver in another namespace found no holder, as nobody had watched that namespace.
func TestHolderOfTheLeaseOfAnObservedDriverIsKnownAtTheFirstView(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.leased()
		v.driver.Mode = registry.ModeObserve
		v.driver.Lease = registry.Lease{Namespace: "elsewhere"}
		holder := "sidecar"
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: registry.LeaseName(virtualDriver), Namespace: "elsewhere"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
		if _, err := v.kube.CoordinationV1().Leases("elsewhere").Create(v.ctx, l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.start()
		v.pass(10 * time.Second)
		if n := v.api.Count("watch", "leases"); n < 2 { // the watches of the API in memory know no namespaces
			t.Errorf("the leases of %d namespaces were watched before the first view, want 2", n)
		}
		if got := v.status().Lease; got.Holder != holder || got.Namespace != "elsewhere" {
			t.Errorf("%+v, want the holder %s", got, holder)
		}
		if c := v.checks()["lease"]; c.OK || !strings.HasPrefix(c.Text, "not known yet: ") {
			t.Errorf("before the holder could renew its lease: %+v", c)
		}
		v.pass(time.Minute)
		if got := v.status().Lease; got.Holder != "" || got.LastHolder != holder {
			t.Errorf("%+v, want one that %s let expire", got, holder)
		}
		if c := v.checks()["lease"]; c.OK || !strings.Contains(c.Text, "nobody holds it; made active, the hub takes it at once") {
			t.Errorf("the lease of a dead holder: %+v", c)
		}
	})
}
