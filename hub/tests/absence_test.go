package tests

import (
	"context"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// emptyCluster answers as an API server in which there is nothing and nothing happens.
type emptyCluster struct{}

func (emptyCluster) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	if query := r.URL.Query(); query.Get("sendInitialEvents") != "" {
		answer.StatusCode = http.StatusUnprocessableEntity
		answer.Body = io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
	} else if query.Get("watch") != "" {
		silence, end := io.Pipe()
		context.AfterFunc(r.Context(), func() { end.Close() })
		answer.Body = silence
	} else {
		kinds := map[string]string{"volumeattachments": "VolumeAttachmentList", "csinodes": "CSINodeList", "csidrivers": "CSIDriverList", "persistentvolumes": "PersistentVolumeList"}
		version := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/")
		answer.Body = io.NopCloser(strings.NewReader(`{"kind":"` + kinds[path.Base(r.URL.Path)] + `","apiVersion":"` + version + `","metadata":{"resourceVersion":"1"},"items":[]}`))
	}
	return answer, nil
}

// plug is the way to a driver, which can be cut and mended.
type plug struct {
	mu   sync.Mutex
	open *plugged // nil: there is no session
	away bool
}

type plugged struct {
	hubdriver.Session
	ended context.Context
	end   func()
}

func (s *plugged) Ended() context.Context      { return s.ended }
func (s *plugged) Close()                      { s.end() }
func (s *plugged) Info() csiclient.Info        { return csiclient.Info{Name: "d"} }
func (s *plugged) Probe(context.Context) error { return nil }

func (p *plug) connect(context.Context, registry.Driver) (hubdriver.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return nil, io.EOF
	}
	p.open = &plugged{}
	p.open.ended, p.open.end = context.WithCancel(context.Background())
	return p.open, nil
}

func (p *plug) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	p.open.end()
}

func (p *plug) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = false
}

// freeLeases are leases that nobody else wants. A driver that went away lately gets its lease after a time.
type freeLeases struct {
	free time.Duration

	mu    sync.Mutex
	terms int
	held  bool
}

func (f *freeLeases) Holder(lease.Name) (lease.Holder, bool) { return lease.Holder{}, false }

func (f *freeLeases) Members() []lease.Member { return nil }

func (f *freeLeases) Hold(ctx context.Context, c lease.Candidacy) error {
	free := time.NewTimer(f.free)
	defer free.Stop()
	for isFree := false; ; {
		reach, changed, again := c.Reach()
		if reach >= lease.JustAway || reach == lease.Away && isFree {
			break
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-time.After(again):
		case <-free.C:
			isFree = true
		}
	}
	f.note(true)
	defer f.note(false)
	return c.Serve(ctx, lease.Always())
}

func (f *freeLeases) note(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held = held; held {
		f.terms++
	}
}

// expect checks how many terms there have been, and whether there is one.
func (f *freeLeases) expect(t *testing.T, when string, terms int, held bool) {
	t.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.terms != terms || f.held != held {
		t.Errorf("%s: term %d, held: %v, want %d, %v", when, f.terms, f.held, terms, held)
	}
}

// plugIn runs a hub that reaches its driver over a plug, until the test ends.
func plugIn(t *testing.T, p *plug, leases hubdriver.Leases, duration time.Duration) {
	t.Helper()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: "http://cluster", Transport: emptyCluster{}, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	h, err := hub.New(hub.Options{Kube: kube, Leases: leases, LeaseNamespace: "ns", LeaseDuration: duration, Connect: p.connect})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), ktesting.NewLogger(t, ktesting.NewConfig())))
	ended := make(chan struct{})
	updates := make(chan registry.Snapshot, 1)
	updates <- registry.Snapshot{"d": {Name: "d", Endpoint: "unix:///d", Settings: registry.DefaultSettings()}}
	go func() {
		defer close(ended)
		if err := h.Run(ctx, updates); err != nil {
			t.Errorf("the hub ended with %v", err)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

func TestALeaseIsLetGoOnceForADriverThatIsAwayForMinutesAndNotAgainWhileItComesAndGoes(t *testing.T) {
	const duration = 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		p, leases := &plug{}, &freeLeases{free: duration}
		plugIn(t, p, leases, duration)
		time.Sleep(time.Minute)
		leases.expect(t, "called for long", 1, true)
		p.cut()
		time.Sleep(duration - time.Second)
		leases.expect(t, "just gone", 1, true)
		time.Sleep(2 * time.Second)
		leases.expect(t, "away for long", 1, false)
		time.Sleep(duration)
		leases.expect(t, "nobody else took it", 2, true)
		for range 5 {
			p.mend()
			time.Sleep(10 * time.Second)
			leases.expect(t, "back", 2, true)
			p.cut()
			time.Sleep(time.Minute)
			leases.expect(t, "gone again", 2, true)
		}
		p.mend()
		time.Sleep(time.Minute)
		leases.expect(t, "back for long", 2, true)
		p.cut()
		time.Sleep(duration + time.Second)
		leases.expect(t, "away for long again", 2, false)
		p.mend()
		time.Sleep(3 * time.Second)
		leases.expect(t, "back before somebody took it", 3, true)
		p.cut()
		time.Sleep(5*time.Minute - time.Second)
		leases.expect(t, "gone soon after", 3, true)
		time.Sleep(2 * time.Second)
		leases.expect(t, "away for five minutes", 3, false)
		time.Sleep(time.Hour)
		leases.expect(t, "away for an hour", 3, false)
		p.mend()
		time.Sleep(3 * time.Second)
		leases.expect(t, "back after an hour", 4, true)
	})
}

func TestTheLeaseOfADriverThatWasNeverReachedIsNotTaken(t *testing.T) {
	const duration = 15 * time.Second
	synctest.Test(t, func(t *testing.T) {
		p, leases := &plug{away: true}, &freeLeases{free: duration}
		plugIn(t, p, leases, duration)
		time.Sleep(time.Hour)
		leases.expect(t, "away for an hour", 0, false)
		p.mend()
		time.Sleep(3 * time.Second)
		leases.expect(t, "there", 1, true)
		p.cut()
		time.Sleep(time.Minute)
		leases.expect(t, "away, and nobody else took it", 2, true)
	})
}
