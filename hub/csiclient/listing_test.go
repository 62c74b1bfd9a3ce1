package csiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/race"
)

// listed is an entry of a volume that is published on the nodes.
func listed(volume string, nodes ...string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{
		Volume: &csi.Volume{VolumeId: volume},
		Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes},
	}
}

// withoutStatus is an entry that does not say where the volume is published.
func withoutStatus(volume string) *csi.ListVolumesResponse_Entry {
	return &csi.ListVolumesResponse_Entry{Volume: &csi.Volume{VolumeId: volume}}
}

// page is one answer of a driver.
func page(next string, entries ...*csi.ListVolumesResponse_Entry) *csi.ListVolumesResponse {
	return &csi.ListVolumesResponse{Entries: entries, NextToken: next}
}

// storage returns a page with so many volumes, on a hundred nodes.
func storage(volumes int) *csi.ListVolumesResponse {
	var entries []*csi.ListVolumesResponse_Entry
	for i := range volumes {
		entries = append(entries, listed(fmt.Sprintf("vol-%032d", i), fmt.Sprintf("i-%017d", i%100)))
	}
	return page("", entries...)
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	must(t, err)
	return data
}

func TestListingTakesAllPages(t *testing.T) {
	for _, tc := range []struct {
		pageSize  int
		wantCalls int
	}{{0, 1}, {2, 3}, {5, 1}, {1, 5}} {
		ctx := testContext(t)
		d := startDriver(t, fakecsi.Knobs{
			GainVolumes:     []string{"a", "b", "c", "d", "e"},
			GainAttachments: []fakecsi.VolumeNode{{Volume: "a", Node: "n1"}, {Volume: "e", Node: "n2"}},
		})
		got, _, err := connect(ctx, t, d.endpoint).ListVolumes(ctx, tc.pageSize)
		must(t, err)
		want := Published{"a": {IDs: []string{"n1"}}, "b": {}, "c": {}, "d": {}, "e": {IDs: []string{"n2"}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("page size %d (-want +got):\n%s", tc.pageSize, diff)
		}
		if calls := d.Books().Methods[fakecsi.ListVolumes].Begun; calls != tc.wantCalls {
			t.Errorf("page size %d: %d calls, want %d", tc.pageSize, calls, tc.wantCalls)
		}
	}
}

func TestListingTellsWhatIsKnownFromWhatIsNot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pages []*csi.ListVolumesResponse
		want  Published
	}{
		{"no volumes", []*csi.ListVolumesResponse{page("")}, Published{}},
		{"published nowhere", []*csi.ListVolumesResponse{page("", listed("v"))}, Published{"v": {}}},
		{"status not given", []*csi.ListVolumesResponse{page("", withoutStatus("v"))}, Published{"v": {Unknown: true}}},
		{"nodes", []*csi.ListVolumesResponse{page("", listed("v", "n1", "n2"))}, Published{"v": {IDs: []string{"n1", "n2"}}}},
		{"entries without a volume, without a handle and without anything",
			[]*csi.ListVolumesResponse{page("", &csi.ListVolumesResponse_Entry{Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: []string{"n1"}}},
				listed("", "n1"), nil, listed("v", "n2"))},
			Published{"v": {IDs: []string{"n2"}}}},
		{"a page without volumes between others", []*csi.ListVolumesResponse{page("1", listed("v")), page("2"), page("", listed("w"))},
			Published{"v": {}, "w": {}}},
		{"one volume on several pages", []*csi.ListVolumesResponse{page("1", listed("v", "n1")), page("2", listed("v", "n2", "n1")), page("", listed("v"))},
			Published{"v": {IDs: []string{"n1", "n2"}}}},
		{"one volume several times, once without status", []*csi.ListVolumesResponse{page("1", listed("v", "n1"), withoutStatus("v")), page("", listed("v", "n2"))},
			Published{"v": {IDs: []string{"n1", "n2"}, Unknown: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, pages := testContext(t), tc.pages
			endpoint := startLister(t, func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
				first := pages[0]
				pages = pages[1:]
				return first, nil
			})
			got, _, err := connect(ctx, t, endpoint).ListVolumes(ctx, 0)
			must(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
		})
	}
}

func TestListingEndsWhenATokenRepeats(t *testing.T) {
	for _, tc := range []struct {
		name   string
		tokens []string
	}{
		{"at once", []string{"a", "a"}},
		{"after others", []string{"a", "b", "c", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testContext(t)
			var calls atomic.Int32
			endpoint := startLister(t, func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
				return page(tc.tokens[int(calls.Add(1)-1)%len(tc.tokens)], listed("v", "n1")), nil
			})
			got, _, err := connect(ctx, t, endpoint).ListVolumes(ctx, 0)
			if got != nil || err == nil || !strings.Contains(err.Error(), "next_token that it gave before") {
				t.Errorf("got %v, %v", got, err)
			}
			if got := int(calls.Load()); got != len(tc.tokens) {
				t.Errorf("%d pages were asked for, want %d", got, len(tc.tokens))
			}
		})
	}
}

func TestAbortedPageStartsTheListingAgainOnce(t *testing.T) {
	aborted := status.Error(codes.Aborted, "the list has changed")
	for _, tc := range []struct {
		name       string
		answers    []any // pages and errors, in order
		wantTokens []string
		want       Published
		wantErr    codes.Code
	}{
		{"once", []any{page("1", listed("gone", "n1")), aborted, page("1", listed("v", "n1")), page("", listed("w"))},
			[]string{"", "1", "", "1"}, Published{"v": {IDs: []string{"n1"}}, "w": {}}, codes.OK},
		{"on the first page", []any{aborted, page("", listed("v"))}, []string{"", ""}, Published{"v": {}}, codes.OK},
		{"twice", []any{page("1", listed("v")), aborted, page("1", listed("v")), page("2"), aborted},
			[]string{"", "1", "", "1", "2"}, nil, codes.Aborted},
		{"never, for another error", []any{page("1", listed("v")), status.Error(codes.InvalidArgument, "broken")}, []string{"", "1"}, nil, codes.InvalidArgument},
		{"and failed in another way then", []any{page("1"), aborted, page("1"), status.Error(codes.Internal, "broken")},
			[]string{"", "1", "", "1"}, nil, codes.Internal},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testContext(t)
			answers, tokens := tc.answers, []string{}
			endpoint := startLister(t, func(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
				tokens = append(tokens, req.GetStartingToken())
				answer := answers[0]
				answers = answers[1:]
				if err, failed := answer.(error); failed {
					return nil, err
				}
				return answer.(*csi.ListVolumesResponse), nil
			})
			got, _, err := connect(ctx, t, endpoint).ListVolumes(ctx, 0)
			if code := status.Code(err); code != tc.wantErr || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("page %d", len(tc.wantTokens)-slices.Index(tc.wantTokens[1:], "")-1)) {
				t.Errorf("error %v, want one with %s of its page", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
			if !slices.Equal(tokens, tc.wantTokens) {
				t.Errorf("tokens %q, want %q", tokens, tc.wantTokens)
			}
		})
	}
}

func TestListingDoesNotHoldUpClose(t *testing.T) {
	ctx := testContext(t)
	onPage, closed := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	endpoint := startLister(t, func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		if calls.Add(1) == 1 {
			close(onPage)
			<-closed
		}
		return page("more", listed("v")), nil
	})
	s := connect(ctx, t, endpoint)
	go func() {
		defer close(closed)
		<-onPage
		s.Close()
	}()
	got, _, err := s.ListVolumes(ctx, 0)
	if got != nil || status.Code(err) != codes.Unavailable || calls.Load() != 1 {
		t.Errorf("got %v, %v after %d pages: want the page in flight to be the last", got, err, calls.Load())
	}
	<-s.Ended().Done()
}

// Some drivers ignore max_entries.
func TestPageAboveTheLimitIsAskedForWithHalfAsManyVolumesOnce(t *testing.T) {
	const volumeSize = 1 << 20
	for name, tc := range map[string]struct {
		most  int // volumes on a page, whatever is asked for
		asked []int32
		err   string
	}{
		"half fits":                {100, []int32{6, 3, 3, 3, 3}, ""},
		"half is too large":        {0, []int32{12, 6}, "page 1: rpc error: code = Internal desc = the answer of driver " + driverName + " to ListVolumes is too large, the driver must answer with less (lower drift.pageSize)"},
		"a volume is too large":    {-1, []int32{1}, "is too large"},
		"the driver takes no size": {-2, []int32{0}, "is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testContext(t)
			var asked []int32
			endpoint := startLister(t, func(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
				asked = append(asked, req.MaxEntries)
				p, n := page(""), int(req.MaxEntries)
				if tc.most <= 0 {
					n = 12
				}
				from := len(req.StartingToken)
				for i := from; i < min(from+n, 12); i++ {
					v := listed(fmt.Sprint(i))
					v.Volume.VolumeContext = map[string]string{"x": strings.Repeat("x", volumeSize)}
					p.Entries = append(p.Entries, v)
				}
				if from+n < 12 {
					p.NextToken = strings.Repeat("x", from+n)
				}
				return p, nil
			})
			got, _, err := connect(ctx, t, endpoint).ListVolumes(ctx, int(tc.asked[0]))
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("asked for %v volumes, want %v", asked, tc.asked)
			}
			if tc.err == "" && (err != nil || len(got) != 12) || tc.err != "" && (got != nil || status.Code(err) != codes.Internal || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got %d volumes, %v", len(got), err)
			}
		})
	}
}

// All drivers share the memory of the process.
func TestFourPagesAreReadAtATime(t *testing.T) {
	ctx := testContext(t)
	var inFlight, most atomic.Int32
	four := make(chan struct{})
	open := sync.OnceFunc(func() { close(four) })
	lister := func(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 4 {
			open()
		}
		select {
		case <-four:
		case <-ctx.Done():
		}
		if req.StartingToken == "" {
			return page("next", listed("v")), nil
		}
		return page("", listed("w")), nil
	}
	var all errgroup.Group
	for range 8 {
		s := connect(ctx, t, startLister(t, lister))
		all.Go(func() error {
			got, _, err := s.ListVolumes(ctx, 0)
			if err == nil && len(got) != 2 {
				err = fmt.Errorf("got %d volumes", len(got))
			}
			return err
		})
	}
	if err := all.Wait(); err != nil || most.Load() != 4 {
		t.Errorf("%v; %d at a time", err, most.Load())
	}
}

// What a listing takes must not be what all other drivers have.
func TestListingWithoutEndIsEnded(t *testing.T) {
	race.Skip(t, "one goroutine takes all pages")
	many := make([]string, 1<<15)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	megabyte := strings.Repeat("x", 1<<20)
	for _, tc := range []struct {
		name string
		page func(n int) *csi.ListVolumesResponse
		want error
	}{
		{"new tokens and no volume", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n)) }, errEndless},
		{"new tokens and the same volume", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n), listed("v", "n1", "n2")) }, errEndless},
		{"ever new volumes", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n), listed(megabyte+fmt.Sprint(n))) }, errTooMuch},
		{"ever new nodes", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n), listed("v", many...)) }, errTooMuch},
		{"tokens of megabytes", func(n int) *csi.ListVolumesResponse { return page(megabyte+fmt.Sprint(n), listed(fmt.Sprint(n))) }, errTooMuch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := listing{published: Published{}, tokens: map[string]bool{}}
			var err error
			n := 0
			for ; err == nil; n++ {
				_, err = l.take(encoded(t, tc.page(n)))
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("%v after %d pages, want %v", err, n, tc.want)
			}
		})
	}
}

func TestHundredThousandVolumesAndNodesAreListed(t *testing.T) {
	race.Skip(t, "one goroutine takes all pages")
	nodes := make([]string, 1<<17)
	for i := range nodes {
		nodes[i] = fmt.Sprint(i)
	}
	for _, tc := range []struct {
		page           *csi.ListVolumesResponse
		volumes, nodes int // nodes of "v"
	}{{storage(100_000), 100_000, 0}, {page("", listed("v", nodes...), listed("v", nodes...)), 1, len(nodes)}} {
		l := listing{published: Published{}}
		_, err := l.take(encoded(t, tc.page))
		must(t, err)
		l.compact()
		if got := l.published["v"]; len(l.published) != tc.volumes || len(got.IDs) != tc.nodes || got.Has("7") != (tc.nodes > 0) {
			t.Errorf("got %d volumes, one of them on %d nodes", len(l.published), len(got.IDs))
		}
	}
}

func TestEachPageHasATimeoutOfItsOwn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		latest time.Duration // that the last of the pages takes
		want   codes.Code
	}{
		{"long in all", 50 * time.Second, codes.OK},
		{"one page too long", 70 * time.Second, codes.DeadlineExceeded},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				took := []time.Duration{50 * time.Second, 50 * time.Second, tc.latest}
				s := pipeSession(t, newLister(t, func(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
					at := len(req.GetStartingToken())
					select {
					case <-time.After(took[at]):
					case <-ctx.Done():
						return nil, ctx.Err()
					}
					if at == len(took)-1 {
						return page(""), nil
					}
					return page(strings.Repeat("x", at+1)), nil
				}))
				_, _, err := s.ListVolumes(t.Context(), 0)
				if status.Code(err) != tc.want {
					t.Errorf("got %v, want %s", err, tc.want)
				}
			})
		})
	}
}

// The next listing waits for ten times as long. Listings of other drivers that hang would delay it.
func TestTimeOfAListingIsThatOfItsOwnPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func(slots chan struct{}) { pageSlots = slots }(pageSlots)
		pageSlots = make(chan struct{}, 1)
		pageSlots <- struct{}{}
		s := pipeSession(t, newLister(t, func(_ context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
			time.Sleep(3 * time.Second)
			if req.StartingToken == "" {
				return page("next"), nil
			}
			return page(""), nil
		}))
		time.AfterFunc(time.Minute, func() { <-pageSlots })
		began := time.Now()
		if _, took, err := s.ListVolumes(t.Context(), 0); err != nil || took != 6*time.Second {
			t.Errorf("%v, listed in %v of %v, want 6s: two pages", err, took, time.Since(began))
		}
	})
}

// pipeSession connects to a server in memory, which works in a bubble.
func pipeSession(t *testing.T, server *grpc.Server) *Session {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	conn, err := grpc.NewClient("passthrough:///pipe", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		<-served
	})
	return &Session{conn: conn}
}
