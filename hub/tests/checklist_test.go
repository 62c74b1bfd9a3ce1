package tests

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// checks returns the checklist of the driver by name.
func (v *virtual) checks() map[string]status.Check {
	v.t.Helper()
	checks := map[string]status.Check{}
	for _, c := range v.hub.Checklist(v.t.Context(), virtualDriver) {
		checks[c.Name] = c
	}
	return checks
}

func openNames(checks map[string]status.Check) []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name, c := range checks {
			if !c.OK && !yield(name) {
				return
			}
		}
	})
}

func TestChecklistOfADriverInAnyModeSaysWhatIsMissing(t *testing.T) {
	for _, mode := range []registry.Mode{registry.ModeActive, registry.ModePaused, registry.ModeObserve} {
		t.Run(string(mode), func(t *testing.T) {
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
				v.create(testbed.PersistentVolume{Name: "v", Driver: virtualDriver, Handle: "v", Secret: &corev1.SecretReference{Namespace: "storage", Name: "creds"}})
				v.create(testbed.PersistentVolume{Name: "w", Driver: "other", Handle: "w", Secret: &corev1.SecretReference{Namespace: "storage", Name: "others"}})
				v.create(testbed.Node{Name: "n"}, v.attachment("v", "n"))
				v.start()
				v.pass(time.Second)
				checks := v.checks()
				names := slices.Sorted(maps.Keys(checks))
				want := []string{"capabilities", "endpoint", "lease", "name", "node IDs", "rights", "secrets"}
				open := []string{"node IDs", "rights", "secrets"}
				if mode == registry.ModeObserve {
					want, open = append([]string{"capabilities", "decisions"}, want[1:]...), []string{"decisions", "lease", "node IDs", "rights", "secrets"}
				}
				if !slices.Equal(names, want) || !slices.Equal(openNames(checks), open) {
					t.Fatalf("checks %v, open %v, want %v, open %v", names, openNames(checks), want, open)
				}
				for name, words := range map[string]string{"node IDs": "1 of 1 nodes", "rights": "patch persistentvolumes", "secrets": "1 of 1 cannot be read, for example storage/creds"} {
					if c := checks[name]; !strings.Contains(c.Text, words) || len(c.Actions) == 0 {
						t.Errorf("%+v, want %q and an action", c, words)
					}
				}

				v.register("n", "id-n")
				v.create(testbed.Secret{Namespace: "storage", Name: "creds", Data: map[string]string{"password": "hush"}})
				granted.Store(true)
				v.pass(2 * time.Minute)
				if open := openNames(v.checks()); mode == registry.ModeActive && len(open) > 0 || slices.Contains(open, "node IDs") || slices.Contains(open, "rights") || slices.Contains(open, "secrets") {
					t.Errorf("all is granted, and open are %v", open)
				}
			})
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
		v.pass(time.Second)
		v.checks()
		v.checks()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times at once, want 1", n)
		}
		v.pass(time.Minute)
		v.checks()
		if n := asked.Load(); n != 2 {
			t.Errorf("asked %d times within a minute, want 2", n)
		}
		if got := v.hub.Checklist(t.Context(), "nobody"); got != nil {
			t.Errorf("an unknown driver has %+v", got)
		}
	})
}

// The socket of a node plugin answers under the right name.
func TestChecklistIsOpenForADriverThatWasCalledAndHasNoCapability(t *testing.T) {
	for name, c := range map[string]struct {
		called, capable, noAttach bool
		ok                        bool
		words                     string
	}{
		"never called":  {ok: true, words: "marked attached without a call"},
		"called before": {called: true, words: "no CONTROLLER_SERVICE, but 1 VolumeAttachments have the finalizer or the node ID"},
		"can be called": {called: true, capable: true, ok: true, words: "PUBLISH_UNPUBLISH_VOLUME"},
		"no attach":     {capable: true, noAttach: true, words: "nothing to attach"},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Mode = registry.ModeObserve
				v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
					s := newBackendSession(v.backend)
					s.info.Capabilities.PublishUnpublish = c.capable
					return s, nil
				}
				v.withNode("v")
				va := v.attachment("v", "n").Build()
				if c.called {
					va.Finalizers = []string{"external-attacher/virtual-example-com"}
				}
				if _, err := v.kube.StorageV1().VolumeAttachments().Create(t.Context(), va, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				if c.noAttach {
					v.create(testbed.CSIDriver{Name: virtualDriver, NoAttach: true})
				}
				v.start()
				v.pass(time.Second)
				if got := v.checks()["capabilities"]; got.OK != c.ok || !strings.Contains(got.Text, c.words) || got.OK != (len(got.Actions) == 0) {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}
