package csiclient

import (
	"context"
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
	must(t, err)
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
	d.setKnobs(t, fakecsi.Knobs{ReleaseAll: true})
	if err := <-inFlight; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	if err := <-publish(ctx, next, "w"); err != nil {
		t.Errorf("a call on the new Session got %v", err)
	}
}

func TestSessionEndsIfTheDriverTakesTheNewFilesOrTheseDoNotVouchForItAnyMore(t *testing.T) {
	expired := certtest.Request{To: time.Now().Add(-time.Minute)}
	for name, c := range map[string]struct {
		change func(t *testing.T, p *parties, own certtest.Pair, look func())
		ends   bool
	}{
		"key not yet written": {func(t *testing.T, p *parties, _ certtest.Pair, _ func()) {
			certtest.WriteFile(t, p.files.CertFile, p.hubCA.Issue(certtest.Request{}).CertPEM)
		}, false},
		"expired": {func(t *testing.T, p *parties, _ certtest.Pair, _ func()) {
			p.write(t, p.driverCA, p.hubCA.Issue(expired))
		}, false},
		"not taken by the driver": {func(t *testing.T, p *parties, _ certtest.Pair, _ func()) {
			p.write(t, p.driverCA, certtest.NewAuthority(t, "other CA").Issue(certtest.Request{}))
		}, false},
		"taken back": {func(t *testing.T, p *parties, own certtest.Pair, look func()) {
			p.write(t, p.driverCA, certtest.NewAuthority(t, "other CA").Issue(certtest.Request{}))
			look()
			p.write(t, p.driverCA, own)
		}, false},
		"another CA": {func(t *testing.T, p *parties, _ certtest.Pair, _ func()) {
			p.write(t, certtest.NewAuthority(t, "new CA"), p.hubCA.Issue(certtest.Request{}))
		}, true},
		"another CA, own certificate expired": {func(t *testing.T, p *parties, _ certtest.Pair, _ func()) {
			p.write(t, certtest.NewAuthority(t, "new CA"), p.hubCA.Issue(expired))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, p, l := testContext(t), newParties(t), make(looks)
			d, own := startTCPDriver(t, p.serverTLS()), p.hubCA.Issue(certtest.Request{})
			p.write(t, p.driverCA, own)
			s := connectFollowing(ctx, t, l, secured(d.endpoint, p.files))
			c.change(t, p, own, func() { l.take(s, 3) })
			l.take(s, 4)
			if c.ends {
				await(ctx, t, s.Ended().Done())
				return
			}
			assertOpen(t, s)
			must(t, <-publish(ctx, s, "v"))
			p.write(t, p.driverCA, p.hubCA.Issue(certtest.Request{}))
			l.take(s, 4)
			await(ctx, t, s.Ended().Done())
			if got := d.Books().Methods[fakecsi.GetPluginInfo].Begun; got != 1 {
				t.Errorf("%d GetPluginInfo calls, want none by tries", got)
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
