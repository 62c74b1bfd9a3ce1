package fakecsi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

// serveControl serves b until the test ends and is a client to it.
func serveControl(t *testing.T, b *Backend, endpoint string) *ControlClient {
	t.Helper()
	lis, err := Listen(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if lis.Addr().Network() == "tcp" {
		endpoint = lis.Addr().String()
	}
	done := make(chan error, 1)
	go func() { done <- ServeControl(t.Context(), lis, Control(b)) }()
	c, err := NewControlClient(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestControlShowsTheBooksAndTurnsTheKnobs(t *testing.T) {
	for _, endpoint := range []string{"unix://" + filepath.Join(shortDir(t), "control.sock"), "127.0.0.1:0"} {
		t.Run(endpoint[:3], func(t *testing.T) {
			ctx := testContext(t)
			b := newBackend(t, Options{})
			c := serveControl(t, b, endpoint)
			if err := c.Set(ctx, Knobs{Fail: []Fault{{Code: codes.Unavailable, Count: 1}}}); err != nil {
				t.Fatal(err)
			}
			if got := publish(ctx, b, "v", "n1", rwo); got != codes.Unavailable {
				t.Errorf("the knob was not turned: got %s", got)
			}
			publish(ctx, b, "v", "n1", rwo)
			got, err := c.Books(ctx)
			if err != nil {
				t.Fatal(err)
			}
			want := b.Books()
			want.Calls = slices.Clone(want.Calls)
			for i := range want.Calls { // JSON keeps no monotonic clock
				want.Calls[i].Start, want.Calls[i].End = want.Calls[i].Start.Round(0), want.Calls[i].End.Round(0)
			}
			if diff := cmp.Diff(want, got, equateEmpty()); diff != "" {
				t.Errorf("books (-there +here):\n%s", diff)
			}
		})
	}
}

// equateEmpty: JSON leaves them out.
func equateEmpty() cmp.Option {
	return cmp.Options{
		cmp.FilterValues(func(x, y map[string]Flight) bool { return len(x) == 0 && len(y) == 0 }, cmp.Ignore()),
		cmp.FilterValues(func(x, y map[string]int) bool { return len(x) == 0 && len(y) == 0 }, cmp.Ignore()),
		cmp.FilterValues(func(x, y []Violation) bool { return len(x) == 0 && len(y) == 0 }, cmp.Ignore()),
	}
}

func TestControlClientWaitsForAChange(t *testing.T) {
	ctx := testContext(t)
	b := newBackend(t, Options{})
	c := serveControl(t, b, "127.0.0.1:0")
	looked := make(chan struct{}, 100)
	done := make(chan error, 1)
	go func() {
		done <- c.Wait(ctx, func(bk Books) bool {
			looked <- struct{}{}
			return bk.IsAttached("v", "n1")
		})
	}()
	<-looked
	publish(ctx, b, "v", "n1", rwo)
	if err := <-done; err != nil {
		t.Error(err)
	}

	cancelled, cancel := context.WithCancel(ctx)
	err := c.Wait(cancelled, func(bk Books) bool {
		cancel()
		return false
	})
	if err == nil {
		t.Error("a wait goes on after its context has ended")
	}
}

func TestBooksAfterAVersionComeWithTheNextChange(t *testing.T) {
	tests := []struct {
		name     string
		after    int // relative to the version there is
		changeIn time.Duration
		took     time.Duration
	}{
		{name: "at the change", changeIn: time.Second, took: time.Second},
		{name: "without a change in the end", changeIn: time.Hour, took: longPoll},
		{name: "at once if there was one", after: -1, changeIn: time.Hour},
		{name: "at once after a restart, when versions are lower again", after: 1000, changeIn: time.Hour},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBackend(t, Options{})
				publish(t.Context(), b, "v", "n1", rwo)
				change := time.AfterFunc(tt.changeIn, func() {
					if err := b.Set(Knobs{NotReady: new(true)}); err != nil {
						t.Error(err)
					}
				})
				defer change.Stop()
				begin := time.Now()
				url := fmt.Sprintf("/books?after=%d", int(b.Books().Version)+tt.after)
				Control(b).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
				if took := time.Since(begin); took != tt.took {
					t.Errorf("they took %s, want %s", took, tt.took)
				}
			})
		})
	}
}

func TestWrongKnobsAreRefusedWithTheReason(t *testing.T) {
	ctx := testContext(t)
	b := newBackend(t, Options{})
	c := serveControl(t, b, "127.0.0.1:0")
	if err := c.Set(ctx, Knobs{Hang: []Hang{{Method: "Fly"}}}); err == nil || !strings.Contains(err.Error(), `unknown method "Fly"`) {
		t.Errorf("an unknown method: got %v", err)
	}
	for _, body := range []string{`{"hangs":[]}`, `{`} {
		if _, err := c.do(ctx, http.MethodPost, "/knobs", []byte(body)); err == nil || !strings.Contains(err.Error(), "400") {
			t.Errorf("%s: got %v", body, err)
		}
	}
	if _, err := c.books(ctx, "?after=soon"); err == nil {
		t.Error("a version that is no number is taken")
	}
}

func TestControlClientSaysWhomItCannotReach(t *testing.T) {
	endpoint := "unix://" + filepath.Join(shortDir(t), "nobody.sock")
	c, err := NewControlClient(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Books(testContext(t)); err == nil || !strings.Contains(err.Error(), endpoint) {
		t.Errorf("got %v", err)
	}
	if _, err := NewControlClient("nowhere"); err == nil {
		t.Error("an endpoint without a port is taken")
	}
}
