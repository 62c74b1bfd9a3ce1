package csiclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// storage returns a page with so many volumes, on a hundred nodes.
func storage(t *testing.T, volumes int) []byte {
	t.Helper()
	var entries []*csi.ListVolumesResponse_Entry
	for i := range volumes {
		entries = append(entries, listed(fmt.Sprintf("vol-%032d", i), fmt.Sprintf("i-%017d", i%100)))
	}
	return encoded(t, page("", entries...))
}

func newTestListing() *listing { return newListing(NewListingMemory().Share()) }

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a listing takes must not be what all other drivers have.
func TestListingWithoutEndIsEnded(t *testing.T) {
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
		{"new tokens and no volume", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n)) }, errBarren},
		{"new tokens and the same volume", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n), listed("v", "n1", "n2")) }, errBarren},
		{"ever new volumes", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n), listed(megabyte+fmt.Sprint(n))) }, errTooMuch},
		{"ever new nodes", func(n int) *csi.ListVolumesResponse { return page(fmt.Sprint(n), listed("v", many...)) }, errTooMuch},
		{"tokens of megabytes", func(n int) *csi.ListVolumesResponse { return page(megabyte+fmt.Sprint(n), listed(fmt.Sprint(n))) }, errTooMuch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newTestListing()
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
	t.Run("on a socket", func(t *testing.T) {
		ctx := testContext(t)
		var pages atomic.Int32
		endpoint := startLister(t, func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
			return page(fmt.Sprint(pages.Add(1))), nil
		})
		if got, err := connect(ctx, t, endpoint).ListVolumes(ctx, ListOptions{}); got != nil || !errors.Is(err, errBarren) {
			t.Errorf("got %d volumes, %v after %d pages", len(got), err, pages.Load())
		}
	})
}

func TestHundredThousandVolumesAreListed(t *testing.T) {
	l := newTestListing()
	if _, err := l.take(storage(t, 100_000)); err != nil || len(l.published) != 100_000 {
		t.Errorf("got %d volumes, %v", len(l.published), err)
	}
}

func TestTenDriversListTenThousandVolumesEachAtOnceBesideLargeLists(t *testing.T) {
	memory := NewListingMemory()
	var large []*ListingShare
	for {
		share := memory.Share()
		large = append(large, share)
		err := share.grow(maxListing)
		if errors.Is(err, errNoMemory) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if len(large) < 2 {
		t.Errorf("one driver has taken everything")
	}
	page := storage(t, 10_000)
	var small errgroup.Group
	for range 10 {
		small.Go(func() error {
			share := memory.Share()
			defer share.Release()
			_, err := newListing(share).take(page)
			return err
		})
	}
	if err := small.Wait(); err != nil {
		t.Error(err)
	}
	more := storage(t, 100_000)
	if _, err := newListing(memory.Share()).take(more); !errors.Is(err, errNoMemory) {
		t.Errorf("100,000 volumes beside them: got %v", err)
	}
	for _, share := range large {
		share.Release()
	}
	if _, err := newListing(memory.Share()).take(more); err != nil {
		t.Errorf("100,000 volumes after them: got %v", err)
	}
	if memory.left > sharedListings {
		t.Errorf("%d bytes were given back twice", memory.left-sharedListings)
	}
}

// Decoded, each empty entry would take eighty bytes.
func TestPageOfEmptyEntriesTakesNoMemory(t *testing.T) {
	l := newTestListing()
	for name, page := range map[string][]byte{
		"entries": bytes.Repeat(field(1), maxPage/2),
		"volumes": field(1, bytes.Repeat(field(1), 1<<20)...),
		"nodes":   field(1, join(field(1, field(2, 'v')...), field(2, bytes.Repeat(field(1), 1<<10)...))...),
	} {
		if allocated := testing.AllocsPerRun(1, func() {
			if _, err := l.take(page); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}); allocated > 100 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
	}
}

func TestPagesAboveOneMiBAreReadOneAtATime(t *testing.T) {
	ctx := testContext(t)
	long := strings.Repeat("x", maxSmallPage)
	var mu sync.Mutex
	inFlight, most := 0, 0 // of the calls for a page that is known to be large
	lister := func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		defer func() { mu.Lock(); defer mu.Unlock(); inFlight-- }()
		return page("", listed(long, "n1")), nil
	}
	memory := NewListingMemory()
	var sessions []*Session
	for range 4 {
		s := connect(ctx, t, startLister(t, lister))
		if _, err := s.ListVolumes(ctx, ListOptions{Share: memory.Share()}); err != nil { // it learns that
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	most = 0
	var all errgroup.Group
	for _, s := range sessions {
		all.Go(func() error {
			share := memory.Share()
			defer share.Release()
			got, err := s.ListVolumes(ctx, ListOptions{Share: share})
			if err == nil && !got[long].Has("n1") {
				err = errors.New("the volume is not listed")
			}
			return err
		})
	}
	if err := all.Wait(); err != nil || most != 1 {
		t.Errorf("%v; %d at a time", err, most)
	}
}

func TestSmallPageDoesNotWaitForALargeOne(t *testing.T) {
	ctx := testContext(t)
	memory := NewListingMemory()
	if err := memory.Share().beginPage(ctx); err != nil {
		t.Fatal(err)
	}
	size := 10
	s := connect(ctx, t, startLister(t, func(context.Context, *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		return page("", listed(strings.Repeat("x", size), "n1")), nil
	}))
	if _, err := s.ListVolumes(ctx, ListOptions{Share: memory.Share()}); err != nil {
		t.Errorf("a small page: %v", err)
	}
	size = maxSmallPage
	waiting, giveUp := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		_, err := s.ListVolumes(waiting, ListOptions{Share: memory.Share()})
		ended <- err
	}()
	giveUp()
	if err := <-ended; err == nil {
		t.Error("a large page did not wait")
	}
}

func TestDriverThatIsSlowWithALargePageDoesNotKeepOthersWaiting(t *testing.T) {
	ctx := testContext(t)
	memory := NewListingMemory()
	memory.pageTime = 50 * time.Millisecond
	s := connect(ctx, t, startLister(t, func(ctx context.Context, _ *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	s.largePages.Store(true)
	_, err := s.ListVolumes(ctx, ListOptions{Share: memory.Share()})
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "took more than 30s for a page above 1 MiB") {
		t.Errorf("got %v", err)
	}
	if err := memory.Share().beginPage(ctx); err != nil {
		t.Errorf("the next page: %v", err)
	}
}
