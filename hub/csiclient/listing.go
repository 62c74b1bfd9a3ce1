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

// Published is what one listing said: where the driver has published each volume,
// by volume handle. A volume without a key was not listed at all. Nobody changes
// it once it has been returned.
type Published map[string]PublishedNodes

// PublishedNodes is where one volume is published, as far as the driver said. The
// zero value is a volume that is published nowhere.
type PublishedNodes struct {
	IDs []string // of the nodes, as the driver calls them; no order
	// Unknown: the driver gave no status with the volume, so that a node that is not
	// among the IDs proves nothing.
	Unknown bool
}

// Has says whether the volume is listed as published on the node.
func (n PublishedNodes) Has(nodeID string) bool { return slices.Contains(n.IDs, nodeID) }

// errRepeated ends a listing that would never end.
var errRepeated = errors.New("the driver has answered with a next_token that it gave before, so that its list would never end")

// ListVolumes asks for all pages of the driver's volumes. It returns the whole
// listing or an error, never a part. The error of a call is a gRPC status that says
// on which page it was, Unavailable if the Session ended meanwhile. A page answered
// Aborted (its token does not hold any more, says the CSI spec) makes the listing
// start again, once. It blocks as long as there are pages; ctx ends it.
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
	published, seen := Published{}, map[string]bool{}
	for token, page := "", 1; ; page++ {
		resp, err := s.listPage(ctx, token, o)
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", page, err)
		}
		for _, entry := range resp.GetEntries() {
			published.add(entry)
		}
		if token = resp.GetNextToken(); token == "" {
			return published, nil
		}
		if seen[token] {
			return nil, fmt.Errorf("page %d: %w", page, errRepeated)
		}
		seen[token] = true
	}
}

// listPage makes one call. It is a call of its own to the Session, so that a
// listing does not hold up a Close until its last page.
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
	return csi.NewControllerClient(s.conn).ListVolumes(ctx, &csi.ListVolumesRequest{
		MaxEntries: int32(o.PageSize), StartingToken: token})
}

// add takes one entry in. Some drivers list a volume again for each of its nodes,
// or on the next page after a change; some have entries without a volume.
func (p Published) add(entry *csi.ListVolumesResponse_Entry) {
	handle := entry.GetVolume().GetVolumeId()
	if handle == "" {
		return
	}
	nodes := p[handle]
	if entry.GetStatus() == nil {
		nodes.Unknown = true
	}
	for _, id := range entry.GetStatus().GetPublishedNodeIds() {
		if !nodes.Has(id) {
			nodes.IDs = append(nodes.IDs, id)
		}
	}
	p[handle] = nodes
}
