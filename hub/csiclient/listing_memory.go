package csiclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxListing bounds the memory of one listing, in bytes: 200,000 volumes with usual handles and
	// node IDs.
	maxListing = 32 << 20
	// ownListing is what each listing has for itself, in bytes: 25,000 volumes. So large listings of other
	// drivers never stop a small one.
	ownListing = 4 << 20
	// sharedListings is what all listings share beyond that, in bytes. It is more than maxListing, so that
	// no driver takes it all.
	sharedListings = 64 << 20
	// memoryStep is the unit in which a listing takes shared memory, in bytes.
	memoryStep = 1 << 20
)

// The errors of listings that take too much memory.
var (
	errTooMuch  = fmt.Errorf("the driver's list takes more than %d MiB of memory", maxListing>>20)
	errNoMemory = errors.New("the lists of all drivers together take too much memory, the next check tries again")
)

// largePageTime bounds a call for a page above maxSmallPage: other drivers wait for their turn meanwhile. Some drivers ask
// their cloud for each page, which takes a while.
const largePageTime = 30 * time.Second

var errSlowPage = status.Errorf(codes.DeadlineExceeded, "the driver took more than %s for a page above %d MiB, for which other drivers wait: it must answer sooner, or with fewer volumes on a page (drift.pageSize)",
	largePageTime, maxSmallPage>>20)

// ListingMemory bounds the memory of the listings of all drivers of a process. It is safe for
// concurrent use.
type ListingMemory struct {
	page     chan struct{} // has an element while a page above maxSmallPage is read
	pageTime time.Duration // of the reading of such a page

	mu   sync.Mutex
	left int // of sharedListings; guarded by mu
}

// NewListingMemory returns the memory for listings, none of which is taken.
func NewListingMemory() *ListingMemory {
	return &ListingMemory{page: make(chan struct{}, 1), pageTime: largePageTime, left: sharedListings}
}

// Share returns what one listing takes of the memory: nothing yet. The caller must call Release when it
// does not use the listing any more.
func (m *ListingMemory) Share() *ListingShare { return &ListingShare{memory: m, size: ownListing} }

// ListingShare is the share of one listing in a ListingMemory. It is not safe for concurrent use.
type ListingShare struct {
	memory *ListingMemory
	size   int // that the listing may have, in bytes
}

// grow takes memory for a listing that has reached a size. It does not block: a listing that waited for others
// would keep what it has meanwhile.
func (s *ListingShare) grow(size int) error {
	if size <= s.size {
		return nil
	}
	if size > maxListing {
		return errTooMuch
	}
	step := size - s.size + memoryStep
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if step > s.memory.left {
		return errNoMemory
	}
	s.memory.left -= step
	s.size += step
	return nil
}

// Release gives the memory back.
func (s *ListingShare) Release() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.left += s.size - ownListing
	s.size = ownListing
}

// beginPage blocks until no other large page is being read, or until ctx ends.
func (s *ListingShare) beginPage(ctx context.Context) error {
	select {
	case s.memory.page <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *ListingShare) endPage() { <-s.memory.page }
