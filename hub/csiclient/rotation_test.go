package csiclient

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// looks lets a test say when the files are looked at. A look has ended when the next
// one is taken.
type looks chan time.Time

// take makes looks until the Session is done or so many were begun.
func (l looks) take(s *Session, n int) {
	for range n {
		select {
		case l <- time.Time{}:
		case <-s.Ended().Done():
			return
		}
	}
}

func connectFollowing(ctx context.Context, t *testing.T, l looks, d registry.Driver) *Session {
	t.Helper()
	s, err := connectAndFollow(ctx, d, nil, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestReplacedFilesEndTheSessionButNotItsCalls(t *testing.T) {
	ctx := testContext(t)
	p := newParties(t)
	d := startTCPDriver(t, p.serverTLS())
	l := make(looks)
	s := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
	inFlight := hangingPublish(ctx, t, d, s)
	l.take(s, 3)
	assertOpen(t, s)

	p.write(t, p.driverCA, p.hubCA.Issue(certtest.Request{}))
	l.take(s, 3)
	<-s.Ended().Done()
	next := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
	if err := <-publish(ctx, s, "w"); status.Code(err) != codes.Unavailable {
		t.Errorf("a call on the old Session got %v", err)
	}
	d.turn(t, fakecsi.Knobs{ReleaseAll: true})
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	if err := <-publish(ctx, next, "w"); err != nil {
		t.Errorf("a call on the new Session got %v", err)
	}
}

func TestFilesThatAreNotWholeKeepTheSession(t *testing.T) {
	ctx := testContext(t)
	p := newParties(t)
	d := startTCPDriver(t, p.serverTLS())
	l := make(looks)
	s := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
	next := p.hubCA.Issue(certtest.Request{})
	certtest.WriteFile(t, p.files.CertFile, next.CertPEM) // its key follows
	l.take(s, 4)
	expired := p.hubCA.Issue(certtest.Request{To: time.Now().Add(-time.Minute)})
	p.write(t, p.driverCA, expired)
	l.take(s, 4)
	assertOpen(t, s)
	if err := <-publish(ctx, s, "v"); err != nil {
		t.Error(err)
	}
	p.write(t, p.driverCA, next)
	l.take(s, 3)
	<-s.Ended().Done()
}

func TestFilesThatTheDriverDoesNotTakeKeepTheSession(t *testing.T) {
	ctx := testContext(t)
	p := newParties(t)
	d := startTCPDriver(t, p.serverTLS())
	l := make(looks)
	s := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
	stranger := certtest.NewAuthority(t, "other CA")
	p.write(t, p.driverCA, stranger.Issue(certtest.Request{}))
	l.take(s, 4)
	assertOpen(t, s)
	if err := <-publish(ctx, s, "v"); err != nil {
		t.Error(err)
	}
	p.write(t, p.driverCA, p.hubCA.Issue(certtest.Request{}))
	l.take(s, 4)
	await(ctx, t, s.Ended().Done())
	if got := d.Books().Methods[fakecsi.GetPluginInfo].Begun; got != 1 {
		t.Errorf("%d GetPluginInfo calls, want none by tries", got)
	}
}

func TestFilesThatWereTakenBackKeepTheSession(t *testing.T) {
	ctx := testContext(t)
	p := newParties(t)
	d := startTCPDriver(t, p.serverTLS())
	l := make(looks)
	own := p.hubCA.Issue(certtest.Request{})
	p.write(t, p.driverCA, own)
	s := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
	p.write(t, p.driverCA, certtest.NewAuthority(t, "other CA").Issue(certtest.Request{}))
	l.take(s, 3)
	p.write(t, p.driverCA, own)
	l.take(s, 4)
	assertOpen(t, s)
}

func TestFilesThatDoNotVouchForTheDriverEndTheSession(t *testing.T) {
	for name, own := range map[string]certtest.Request{"own certificate is valid": {}, "own certificate has expired": {To: time.Now().Add(-time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			p := newParties(t)
			d := startTCPDriver(t, p.serverTLS())
			l := make(looks)
			s := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
			p.write(t, certtest.NewAuthority(t, "new CA"), p.hubCA.Issue(own))
			l.take(s, 3)
			await(ctx, t, s.Ended().Done())
			if _, err := Connect(ctx, secured(d.endpoint, p.files), nil); err == nil {
				t.Error("connected")
			}
		})
	}
}

func await(ctx context.Context, t *testing.T, closed <-chan struct{}) {
	t.Helper()
	select {
	case <-closed:
	case <-ctx.Done():
		t.Fatal("waited in vain")
	}
}

// The owner of Sessions connects anew, as the hub does, while calls go on all the
// time.
func TestRotationUnderLoadFailsNoCall(t *testing.T) {
	ctx := testContext(t)
	p := newParties(t)
	config := p.serverTLS()
	d := startTCPDriver(t, config)
	d.turn(t, fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerPublishVolume: {Base: time.Millisecond}}})
	l := make(looks)
	owner := &owner{session: connectFollowing(ctx, t, l, secured(d.endpoint, p.files))}

	stop := make(chan struct{})
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := owner.publish(ctx, volumeName(i, n)); err != nil {
					t.Errorf("a call failed: %v", err)
					return
				}
			}
		})
	}
	for range 10 {
		begun := d.Books().Methods[fakecsi.ControllerPublishVolume].Begun
		d.awaitCall(ctx, t, fakecsi.ControllerPublishVolume, begun+20)
		p.write(t, p.driverCA, p.hubCA.Issue(certtest.Request{}))
		old := owner.current()
		l.take(old, 3)
		<-old.Ended().Done()
		owner.replace(connectFollowing(ctx, t, l, secured(d.endpoint, p.files)))
	}
	close(stop)
	callers.Wait()
	if b := d.Books(); b.ViolationCount > 0 || b.Methods[fakecsi.ControllerPublishVolume].Codes["Canceled"] > 0 {
		t.Errorf("violations %v, publishes %+v", b.Violations, b.Methods[fakecsi.ControllerPublishVolume])
	}
}

func volumeName(caller, n int) string {
	return string(rune('a'+caller)) + "-" + time.Duration(n).String()
}

// owner holds the Session of the moment.
type owner struct {
	mu      sync.Mutex
	session *Session
}

func (o *owner) current() *Session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.session
}

func (o *owner) replace(s *Session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.session = s
}

// publish makes a call, again on the next Session if this one was not to begin it any
// more. A call that was begun and cut off would fail, and is not made again.
func (o *owner) publish(ctx context.Context, volume string) error {
	for {
		s := o.current()
		err := <-publish(ctx, s, volume)
		if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "the connection to the driver has ended" {
			return err
		}
		select {
		case <-s.Ended().Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
