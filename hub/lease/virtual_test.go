package lease

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/fakekube"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// virtualReplicas are replicas in the virtual time of a synctest bubble. They share an API in memory.
type virtualReplicas struct {
	t       *testing.T
	api     *fakekube.API
	drivers []string

	mu      sync.Mutex
	servers map[string]*virtualReplica // by driver
	since   map[string]time.Time       // when the driver lost its last server
	gap     time.Duration              // the longest time that a driver had no server
}

// virtualReplica is one process, and the network between it and the API.
type virtualReplica struct {
	*virtualReplicas
	identity string
	skew     time.Duration // its clock is ahead of the others by that
	idle     bool          // it says that it can call all drivers, and takes none: its leases are elsewhere
	stop     func()

	mu      sync.Mutex
	dead    bool // the process was killed: it gets no answer and serves nothing
	blind   bool // leases can be written, neither listed nor watched
	watches []context.CancelFunc
	terms   int
}

func inVirtualTime(t *testing.T, f func(v *virtualReplicas)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&virtualReplicas{t: t, api: fakekube.New(), drivers: drivers(12), servers: map[string]*virtualReplica{}, since: map[string]time.Time{}})
		synctest.Wait()
	})
}

// start starts a process that can call all drivers.
func (v *virtualReplicas) start(identity string, change ...func(*virtualReplica)) *virtualReplica {
	v.t.Helper()
	r := &virtualReplica{virtualReplicas: v, identity: identity}
	for _, f := range change {
		f(r)
	}
	kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://fakekube", Transport: r, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}})
	l, err := New(Options{Kube: kube, Identity: identity, Namespace: "hub", Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 5 * time.Second})
	if err != nil {
		v.t.Fatal(err)
	}
	ctx := klog.NewContext(v.t.Context(), klog.Logger{})
	holding, stopHolding := context.WithCancel(ctx)
	running, stopRunning := context.WithCancel(ctx)
	var holds, runs sync.WaitGroup
	runs.Go(func() { _ = l.Run(running) })
	namespace := "hub"
	if r.idle {
		namespace = "elsewhere"
	}
	for _, d := range v.drivers {
		holds.Go(func() {
			_ = l.Hold(holding, Candidacy{Driver: d, Lease: Name{namespace, registry.LeaseName(d)}, Serve: func(stop context.Context, _ *Term) error {
				if r.idle {
					<-stop.Done()
					return nil
				}
				r.serve(d)
				<-stop.Done()
				v.serverLost(d, r)
				return nil
			}})
		})
	}
	r.stop = sync.OnceFunc(func() {
		stopHolding()
		holds.Wait()
		stopRunning()
		runs.Wait()
	})
	v.t.Cleanup(r.stop)
	return r
}

func (r *virtualReplica) serve(driver string) {
	r.mu.Lock()
	r.terms++
	r.mu.Unlock()
	v := r.virtualReplicas
	v.mu.Lock()
	defer v.mu.Unlock()
	if other := v.servers[driver]; other != nil {
		v.t.Errorf("%s and %s serve %s at once", other.identity, r.identity, driver)
	}
	v.servers[driver] = r
	if lost, ok := v.since[driver]; ok {
		v.gap = max(v.gap, time.Since(lost))
		delete(v.since, driver)
	}
}

func (v *virtualReplicas) serverLost(driver string, r *virtualReplica) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.servers[driver] == r {
		delete(v.servers, driver)
		v.since[driver] = time.Now()
	}
}

// longestGap returns the longest time for which a driver had no server since the last call.
func (v *virtualReplicas) longestGap() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	gap := v.gap
	for _, lost := range v.since {
		gap = max(gap, time.Since(lost))
	}
	v.gap = 0
	return gap
}

// shared checks that each driver is served by the replica that should serve it.
func (v *virtualReplicas) shared(replicas ...*virtualReplica) {
	v.t.Helper()
	var members []Member
	for _, r := range replicas {
		members = append(members, Member{Identity: r.identity, Drivers: v.drivers})
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	got := map[string]string{}
	for d, r := range v.servers {
		got[d] = r.identity
	}
	if want := assign(members); !maps.Equal(got, want) {
		v.t.Errorf("drivers are served by:\n%v\nwant:\n%v", got, want)
	}
}

// kill ends the process as kill -9 does: its Leases stay.
func (r *virtualReplica) kill() {
	r.mu.Lock()
	r.dead = true
	r.mu.Unlock()
	r.dropWatches()
	for _, d := range r.drivers {
		r.serverLost(d, r)
	}
}

func (r *virtualReplica) setBlind(blind bool) {
	r.mu.Lock()
	r.blind = blind
	r.mu.Unlock()
	if blind {
		r.dropWatches()
	}
}

func (r *virtualReplica) dropWatches() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, drop := range r.watches {
		drop()
	}
	r.watches = nil
}

func (r *virtualReplica) termsBegun() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms
}

// RoundTrip implements http.RoundTripper.
func (r *virtualReplica) RoundTrip(request *http.Request) (*http.Response, error) {
	isView := request.Method == http.MethodGet && strings.HasSuffix(request.URL.Path, "/leases")
	r.mu.Lock()
	dead, blind := r.dead, r.blind
	if isView && !dead && !blind {
		ctx, cancel := context.WithCancel(request.Context())
		r.watches = append(r.watches, cancel)
		request = request.WithContext(ctx)
	}
	r.mu.Unlock()
	switch {
	case dead:
		<-request.Context().Done()
		return nil, request.Context().Err()
	case blind && isView:
		return nil, errors.New("connection refused")
	case request.Method == http.MethodPost || request.Method == http.MethodPut:
		if err := r.skewTimes(request); err != nil {
			return nil, err
		}
	}
	return r.api.RoundTrip(request)
}

// skewTimes makes the Lease that is written carry the times of the replica's own clock.
func (r *virtualReplica) skewTimes(request *http.Request) error {
	var l coordinationv1.Lease
	if err := json.NewDecoder(request.Body).Decode(&l); err != nil {
		return err
	}
	if l.Spec.RenewTime != nil {
		l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(r.skew)
	}
	body, err := json.Marshal(l)
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err
}

func TestADriverStaysWithWhoTookItFromAnOwnerThatDidNot(t *testing.T) {
	inVirtualTime(t, func(v *virtualReplicas) {
		idle := v.start("idle", func(r *virtualReplica) { r.idle = true })
		a := v.start("a")
		time.Sleep(2 * time.Minute)
		members := []Member{{Identity: a.identity, Drivers: v.drivers}, {Identity: idle.identity, Drivers: v.drivers}}
		if loads(assign(members))[idle.identity] == 0 {
			t.Fatal("no driver is assigned to the idle replica")
		}
		v.servedBy(a, v.drivers...)
		if a.terms != len(v.drivers) {
			t.Errorf("%d drivers were taken %d times", len(v.drivers), a.terms)
		}
		// A third replica comes: a hands over what is assigned to it, and nothing else.
		c := v.start("c")
		time.Sleep(2 * time.Minute)
		var stays, moves []string
		for d, owner := range assign(append(members, Member{Identity: c.identity, Drivers: v.drivers})) {
			if owner == c.identity {
				moves = append(moves, d)
			} else {
				stays = append(stays, d)
			}
		}
		if len(moves) == 0 {
			t.Fatal("no driver is assigned to the third replica")
		}
		v.servedBy(a, stays...)
		v.servedBy(c, moves...)
		if a.terms != len(v.drivers) || c.terms != len(moves) {
			t.Errorf("a has taken drivers %d times, want %d; c %d times, want %d", a.terms, len(v.drivers), c.terms, len(moves))
		}
	})
}

// servedBy checks that a replica serves drivers.
func (v *virtualReplicas) servedBy(r *virtualReplica, drivers ...string) {
	v.t.Helper()
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range drivers {
		if v.servers[d] != r {
			v.t.Errorf("%s does not serve %s", r.identity, d)
		}
	}
}
