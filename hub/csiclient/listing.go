package csiclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ListOptions of one ListVolumes.
type ListOptions struct {
	PageSize    int           // volumes on one page at most (max_entries); 0 leaves it to the driver
	PageTimeout time.Duration // of each page; 0 means none but that of the ctx
}

func (o ListOptions) check() error {
	if o.PageSize < 0 || o.PageSize > math.MaxInt32 {
		return fmt.Errorf("the page size %d is out of range: it is 0 to %d", o.PageSize, math.MaxInt32)
	}
	if o.PageTimeout < 0 {
		return fmt.Errorf("the timeout %s of a page is negative", o.PageTimeout)
	}
	return nil
}

// Published is a whole listing: where the driver has published each volume, by volume
// handle. A volume without a key was not listed. It must not be changed.
type Published map[string]PublishedNodes

// PublishedNodes are the nodes to which one volume is published, as listed. The zero
// value is a volume that is published nowhere.
type PublishedNodes struct {
	IDs []string // node IDs, in no order
	// Unknown: the driver listed the volume without a status. The volume may be published
	// to nodes that are not among the IDs.
	Unknown bool
}

// Has reports whether the volume is listed as published to a node ID.
func (n PublishedNodes) Has(nodeID string) bool { return slices.Contains(n.IDs, nodeID) }

const (
	// maxListing bounds the memory of one listing, in bytes: half a million volumes with
	// usual handles and node IDs. A driver whose list has no end must not take the memory
	// of all others.
	maxListing = 128 << 20
	// listedOverhead is about the memory of a volume, a node ID or a token besides its text,
	// in bytes.
	listedOverhead = 64
	// fewNodes is the number of node IDs of one volume up to which add drops repeated IDs.
	// With very many the search would take too long: compact drops those at the end.
	fewNodes = 64
	// maxBarren bounds the pages in a row that add nothing.
	maxBarren = 1000
)

// The errors of a listing that would never end or takes too much memory.
var (
	errRepeated = errors.New("the driver has answered with a next_token that it gave before, so that its list would never end")
	errBarren   = fmt.Errorf("the driver has answered with %d pages in a row that bring nothing new, so that its list would never end", maxBarren)
	errTooMuch  = fmt.Errorf("the driver's list takes more than %d MiB of memory", maxListing>>20)
)

// ListVolumes asks for all pages of the driver's volumes. It returns the whole
// listing or an error, never a part. The error of a call is a gRPC status with the number
// of the page and a sanitized message of any length; its code is Unavailable if the Session ended meanwhile. After a page that the
// driver answers with Aborted (CSI spec: the token is not valid any more) the listing starts
// again, once. ListVolumes blocks until the last page, or until ctx ends.
func (s *Session) ListVolumes(ctx context.Context, o ListOptions) (Published, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	published, err := s.list(ctx, o)
	if status.Code(err) == codes.Aborted {
		if published, err = s.list(ctx, o); status.Code(err) == codes.Aborted {
			err = fmt.Errorf("aborted, also after a start from the beginning: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	return published, nil
}

// list asks for the pages from the first to the last.
func (s *Session) list(ctx context.Context, o ListOptions) (Published, error) {
	l := newListing()
	for token, page := "", 1; ; page++ {
		resp, err := s.listPage(ctx, token, o)
		if err == nil {
			err = l.take(resp)
		}
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", page, err)
		}
		if token = resp.GetNextToken(); token == "" {
			return l.published.compact(), nil
		}
	}
}

// listing joins the pages of one listing.
type listing struct {
	published Published
	tokens    map[string]bool // of the pages so far
	size      int             // approximate, in memory, in bytes
	barren    int             // pages in a row that added nothing
}

func newListing() *listing { return &listing{published: Published{}, tokens: map[string]bool{}} }

// take adds a page. It returns an error if the pages would never end or take too much memory.
func (l *listing) take(page *csi.ListVolumesResponse) error {
	before := l.size
	for _, entry := range page.GetEntries() {
		if l.size += l.published.add(entry); l.size > maxListing {
			return errTooMuch
		}
	}
	if l.barren++; l.size > before {
		l.barren = 0
	}
	token := page.GetNextToken()
	l.size += len(token) + listedOverhead
	switch {
	case token == "":
		return nil
	case l.tokens[token]:
		return errRepeated
	case l.barren >= maxBarren:
		return errBarren
	case l.size > maxListing:
		return errTooMuch
	}
	l.tokens[token] = true
	return nil
}

// listPage asks for one page. Each page counts as a call of its own, so that a listing does
// not delay a Close until its last page.
func (s *Session) listPage(ctx context.Context, token string, o ListOptions) (*csi.ListVolumesResponse, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	if o.PageTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.PageTimeout)
		defer cancel()
	}
	resp, err := csi.NewControllerClient(s.conn).ListVolumes(ctx, &csi.ListVolumesRequest{
		MaxEntries: int32(o.PageSize), StartingToken: token})
	return resp, sanitizeError(err)
}

// add adds one entry, and returns approximately how much memory that takes, in bytes. Some
// drivers list a volume again for each of its nodes, or on the next page after a change;
// some have entries without a volume.
func (p Published) add(entry *csi.ListVolumesResponse_Entry) (grown int) {
	handle := entry.GetVolume().GetVolumeId()
	if handle == "" {
		return 0
	}
	nodes, listed := p[handle]
	if !listed {
		grown = len(handle) + listedOverhead
	}
	if entry.GetStatus() == nil {
		nodes.Unknown = true
	}
	for _, id := range entry.GetStatus().GetPublishedNodeIds() {
		if len(nodes.IDs) > fewNodes || !nodes.Has(id) {
			nodes.IDs = append(nodes.IDs, id)
			grown += len(id) + listedOverhead
		}
	}
	p[handle] = nodes
	return grown
}

// compact drops the repeated node IDs of volumes on many nodes.
func (p Published) compact() Published {
	for handle, nodes := range p {
		if len(nodes.IDs) > fewNodes {
			slices.Sort(nodes.IDs)
			nodes.IDs = slices.Clip(slices.Compact(nodes.IDs))
			p[handle] = nodes
		}
	}
	return p
}
