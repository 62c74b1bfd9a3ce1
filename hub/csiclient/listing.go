package csiclient

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// ListOptions of one ListVolumes.
type ListOptions struct {
	PageSize    int           // volumes on one page at most (max_entries); 0 leaves it to the driver
	PageTimeout time.Duration // of each page; 0 means none but that of the ctx. A page above 1 MiB has 30s at most
	// Share is what the listing takes of the memory for all listings, until the caller releases it. Nil: the
	// listing has a memory of its own.
	Share *ListingShare
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

// Any reports whether a volume is listed as published to a node ID.
func (p Published) Any() bool {
	for _, nodes := range p {
		if len(nodes.IDs) > 0 {
			return true
		}
	}
	return false
}

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
	// The memory of a volume, of a node ID or a token, and of a volume on a node, besides texts, in bytes.
	volumeOverhead, textOverhead, publishedOverhead = 96, 80, 16
	// fewNodes is the number of node IDs of one volume up to which add drops repeated IDs.
	// With very many the search would take too long: compact drops those at the end.
	fewNodes = 64
	// maxBarren bounds the pages in a row that add nothing.
	maxBarren = 1000
)

// The errors of a listing that would never end.
var (
	errRepeated = errors.New("the driver has answered with a next_token that it gave before, so that its list would never end")
	errBarren   = fmt.Errorf("the driver has answered with %d pages in a row that bring nothing new, so that its list would never end", maxBarren)
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
	if o.Share == nil {
		o.Share = NewListingMemory().Share()
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
	l := newListing(o.Share)
	for token, page := "", 1; ; page++ {
		var err error
		if token, err = s.listPage(ctx, token, o, l); err != nil {
			return nil, fmt.Errorf("page %d: %w", page, err)
		}
		if token == "" {
			return l.published.compact(), nil
		}
	}
}

// listing joins the pages of one listing.
type listing struct {
	published Published
	nodes     map[string]string // each node ID once
	tokens    map[string]bool   // of the pages so far
	size      int               // approximate, in memory, in bytes
	share     *ListingShare
	barren    int // pages in a row that added nothing
}

func newListing(share *ListingShare) *listing {
	return &listing{published: Published{}, nodes: map[string]string{}, tokens: map[string]bool{}, share: share}
}

// take adds an encoded page, and returns the token of the next page. It returns an error if the pages would never end
// or take too much memory.
func (l *listing) take(page []byte) (next string, err error) {
	before, token := l.size, []byte(nil)
	err = eachField(page, func(field protowire.Number, value []byte) error {
		switch field {
		case entriesField:
			return l.add(value)
		case nextTokenField:
			token = value
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if l.barren++; l.size > before {
		l.barren = 0
	}
	l.size += len(token) + textOverhead
	switch {
	case len(token) == 0:
		return "", nil
	case l.tokens[string(token)]:
		return "", errRepeated
	case l.barren >= maxBarren:
		return "", errBarren
	}
	if err := l.share.grow(l.size); err != nil {
		return "", err
	}
	next = string(token)
	l.tokens[next] = true
	return next, nil
}

// listPage asks for one page and adds it to the listing.
func (s *Session) listPage(ctx context.Context, token string, o ListOptions, l *listing) (next string, err error) {
	var page encodedPage
	if !s.largePages.Load() {
		page, err = s.callListVolumes(ctx, token, o, maxSmallPage)
		if _, large := errors.AsType[largeAnswer](err); !large {
			return takePage(l, page, err)
		}
		s.largePages.Store(true)
	}
	if err := o.Share.beginPage(ctx); err != nil {
		return "", err
	}
	defer o.Share.endPage()
	turn, cancel := context.WithCancel(ctx) // no deadline: the driver would learn it, and might answer just before it
	defer cancel()
	defer time.AfterFunc(o.Share.memory.pageTime, cancel).Stop()
	page, err = s.callListVolumes(turn, token, o, maxPage)
	if err != nil && turn.Err() != nil && ctx.Err() == nil {
		err = errSlowPage
	}
	return takePage(l, page, err)
}

func takePage(l *listing, page encodedPage, err error) (next string, _ error) {
	if err != nil {
		return "", sanitizeError(err)
	}
	defer page.Free()
	return l.take(page.ReadOnlyData())
}

// callListVolumes asks for one page. Each page counts as a call of its own, so that a listing does
// not delay a Close until its last page.
func (s *Session) callListVolumes(ctx context.Context, token string, o ListOptions, limit int) (page encodedPage, err error) {
	if err := s.begin(); err != nil {
		return page, err
	}
	defer s.end()
	if o.PageTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.PageTimeout)
		defer cancel()
	}
	request := &csi.ListVolumesRequest{MaxEntries: int32(o.PageSize), StartingToken: token}
	err = s.conn.Invoke(ctx, csi.Controller_ListVolumes_FullMethodName, request, &page,
		grpc.ForceCodecV2(newPageCodec()), grpc.MaxCallRecvMsgSize(limit))
	return page, err
}

// add adds an encoded entry. Some drivers list a volume again for each of its nodes, or on the next page after a
// change; some have entries without a volume.
func (l *listing) add(entry []byte) error {
	var handle []byte
	reported := false
	err := eachField(entry, func(field protowire.Number, value []byte) error {
		switch field {
		case volumeField:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == volumeIDField {
					handle = value
				}
				return nil
			})
		case statusField:
			reported = true
		}
		return nil
	})
	if err != nil || len(handle) == 0 {
		return err
	}
	nodes, listed := l.published[string(handle)]
	if !listed {
		l.size += len(handle) + volumeOverhead
	}
	nodes.Unknown = nodes.Unknown || !reported
	err = eachField(entry, func(field protowire.Number, value []byte) error {
		if field != statusField {
			return nil
		}
		return eachField(value, func(field protowire.Number, value []byte) error {
			if field != nodeIDsField {
				return nil
			}
			return l.addNode(&nodes, value)
		})
	})
	if err != nil {
		return err
	}
	l.published[string(handle)] = nodes
	return l.share.grow(l.size)
}

// addNode adds a node of a volume.
func (l *listing) addNode(nodes *PublishedNodes, id []byte) error {
	node, known := l.nodes[string(id)]
	if !known {
		node = string(id)
		l.nodes[node] = node
		l.size += len(id) + textOverhead
	}
	if len(nodes.IDs) <= fewNodes && nodes.Has(node) {
		return nil
	}
	nodes.IDs = append(nodes.IDs, node)
	l.size += publishedOverhead
	return l.share.grow(l.size)
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
