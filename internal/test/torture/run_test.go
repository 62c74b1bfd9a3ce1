package torture

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

// The long form is `make chaos SEED=9105 FAULTS=1000`. In the short one this seed stops the API server,
// kills a hub, has a hostile driver and both takeovers.
func TestAFewDozenFaultsLoseNothing(t *testing.T) {
	hub, err := testbed.SharedBinary(t.Context(), testbed.BuildOptions{Package: "./cmd/csi-attach-hub", Race: true})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	report, err := Run(t.Context(), Options{Seed: 9105, Faults: 60, Hub: hub, Dir: testbed.ShortTempDir(t), Drivers: 2, Out: &out})
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Logf("%s%s", &out, report)
	if !report.Held() {
		t.Errorf("%d things do not hold", len(report.Findings))
	}
	for _, kind := range []Kind{APIStop, HubKill, HubPause, DriverHostile, TakeoverStale, TakeoverPaused} {
		if report.Counts[kind] == 0 {
			t.Errorf("no %s: choose another seed", kind)
		}
	}
	if report.Faults < 60 || report.Calls == 0 || len(report.Samples) == 0 {
		t.Errorf("%d faults, %d calls, %d samples", report.Faults, report.Calls, len(report.Samples))
	}
}

func TestAProxyMakesTheTroubleThatItIsToldTo(t *testing.T) {
	plane := testbed.Shared(t)
	path := testbed.ShortTempDir(t) + "/kubeconfig"
	p, err := newProxy(plane, path, 1, &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.Timeout = 5 * time.Second
	client := kubernetes.NewForConfigOrDie(config)
	secret := testbed.Secret{Namespace: namespace, Name: "proxied"}.Build()
	create := func() error {
		_, err := client.CoreV1().Secrets(namespace).Create(t.Context(), secret.DeepCopy(), metav1.CreateOptions{})
		return err
	}
	// tried says whether the secret is there all the same, and takes it away.
	tried := func() bool {
		err := plane.Clientset().CoreV1().Secrets(namespace).Delete(t.Context(), secret.Name, metav1.DeleteOptions{})
		return err == nil
	}
	for _, c := range []struct {
		kind Kind
		is   func(error) bool
		done bool
	}{
		{"", func(err error) bool { return err == nil }, true},
		{APISlow, func(err error) bool { return err == nil }, true},
		{APIConflict, apierrors.IsConflict, false},
		{APIError, apierrors.IsInternalError, false},
		{APIAnswerLost, func(err error) bool { return err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown }, true},
	} {
		end := p.begin(trouble{kind: c.kind, share: 1, delay: time.Millisecond})
		if err := create(); !c.is(err) {
			t.Errorf("%q: got %v", c.kind, err)
		}
		if done := tried(); done != c.done {
			t.Errorf("%q: written is %v, want %v", c.kind, done, c.done)
		}
		end()
	}

	w, err := client.CoreV1().Secrets(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := p.dropWatches(); n != 1 {
		t.Errorf("%d watches are dropped, want 1", n)
	}
	for range w.ResultChan() { // until it has ended
	}
	p.Shut()
	answered := make(chan error, 1)
	go func() { answered <- create() }()
	select {
	case err := <-answered:
		t.Errorf("answered in silence: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.Open()
	if err := errors.Join(<-answered); err != nil || !tried() {
		t.Errorf("after the silence: %v", err)
	}
}

// A process may be paused after a write has passed its fence, and sends it when it goes on. What comes later passes the fence
// later.
func TestAWriteRightAfterAPauseCountsFromItsBegin(t *testing.T) {
	resumed := time.Now()
	p := &proxy{pause: hold{from: resumed.Add(-time.Minute), until: resumed}}
	if at := resumed.Add(afterPause / 2); !p.left(at).Equal(p.pause.from) {
		t.Errorf("a write right after the pause counts from %v", p.left(at))
	}
	if at := resumed.Add(afterPause); !p.left(at).Equal(at) {
		t.Errorf("a later write counts from %v", p.left(at))
	}
}
