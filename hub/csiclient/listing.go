package csiclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

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
	// pageTimeout bounds the call for one page.
	pageTimeout = time.Minute
	// maxListing bounds the memory of one listing, in bytes: about 100,000 volumes with usual handles and node IDs.
	maxListing = 16 << 20
	// The memory of a volume, of a node ID or a token, and of a volume on a node, besides texts, in bytes.
	volumeOverhead, textOverhead, publishedOverhead = 96, 80, 16
	// fewNodes is the number of node IDs of one volume up to which add drops repeated IDs.
	// With very many the search would take too long: compact drops those at the end.
	fewNodes = 64
	// maxBarren bounds the pages in a row that add nothing.
	maxBarren = 1000
)

// pageSlots bounds the pages that the drivers of the process send at once: they share its memory.
var pageSlots = make(chan struct{}, 4)

// The errors of a listing that would never end, or take too much memory.
var (
	errRepeated = errors.New("the driver has answered with a next_token that it gave before, so that its list would never end")
	errBarren   = fmt.Errorf("the driver has answered with %d pages in a row that bring nothing new, so that its list would never end", maxBarren)
	errTooMuch  = fmt.Errorf("the driver's list takes more than %d MiB of memory", maxListing>>20)
)

// ListVolumes asks for all pages of the driver's volumes, with at most pageSize volumes on a page; 0 leaves that to the
// driver. It returns the whole listing or an error, never a part. The error of a call is a gRPC status with the number
// of the page and a sanitized message of any length; its code is Unavailable if the Session ended meanwhile. After a page that the
// driver answers with Aborted (CSI spec: the token is not valid any more) the listing starts
// again, once. ListVolumes blocks until the last page, or until ctx ends. Each page waits for one of the slots of the process.
func (s *Session) ListVolumes(ctx context.Context, pageSize int) (Published, error) {
	published, err := s.list(ctx, pageSize)
	if status.Code(err) == codes.Aborted {
		if published, err = s.list(ctx, pageSize); status.Code(err) == codes.Aborted {
			err = fmt.Errorf("aborted, also after a start from the beginning: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list volumes: %w", err)
	}
	return published, nil
}

// list asks for the pages from the first to the last. After a page that is too large it asks for half as many volumes, once.
func (s *Session) list(ctx context.Context, pageSize int) (Published, error) {
	l, halved := newListing(), false
	for token, page := "", 1; ; page++ {
		answer, err := s.listPage(ctx, token, pageSize)
		if _, large := errors.AsType[largeAnswer](err); large && !halved && pageSize > 1 {
			pageSize, halved = pageSize/2, true
			answer, err = s.listPage(ctx, token, pageSize)
		}
		if err == nil {
			token, err = l.take(answer)
		}
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", page, sanitizeError(err))
		}
		if token == "" {
			return l.published.compact(), nil
		}
	}
}

// listPage asks for one page. Each page counts as a call of its own, so that a listing does
// not delay a Close until its last page. The page stays encoded: decoded, a page of empty entries would take fifty times its size.
func (s *Session) listPage(ctx context.Context, token string, pageSize int) (page []byte, err error) {
	select {
	case pageSlots <- struct{}{}:
		defer func() { <-pageSlots }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.end()
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	request := &csi.ListVolumesRequest{MaxEntries: int32(pageSize), StartingToken: token}
	var answer emptypb.Empty // keeps all fields as they were sent
	err = s.conn.Invoke(ctx, csi.Controller_ListVolumes_FullMethodName, request, &answer, grpc.MaxCallRecvMsgSize(maxPage))
	return answer.ProtoReflect().GetUnknown(), err
}

// listing joins the pages of one listing.
type listing struct {
	published Published
	nodes     map[string]string // each node ID once
	tokens    map[string]bool   // of the pages so far
	size      int               // approximate, in memory, in bytes
	barren    int               // pages in a row that added nothing
}

func newListing() *listing {
	return &listing{published: Published{}, nodes: map[string]string{}, tokens: map[string]bool{}}
}

// take adds an encoded page, and returns the token of the next page. It returns an error if the pages would never end
// or take too much memory.
func (l *listing) take(page []byte) (next string, err error) {
	before := l.size
	err = eachField(page, func(field protowire.Number, value []byte) error {
		switch field {
		case entriesField:
			return l.add(value)
		case nextTokenField:
			next = string(value)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if l.barren++; l.size > before {
		l.barren = 0
	}
	l.size += len(next) + textOverhead
	switch {
	case l.size > maxListing:
		return "", errTooMuch
	case next == "":
		return "", nil
	case l.tokens[next]:
		return "", errRepeated
	case l.barren >= maxBarren:
		return "", errBarren
	}
	l.tokens[next] = true
	return next, nil
}

// add adds an encoded entry. Some drivers list a volume again for each of its nodes, or on the next page after a
// change; some have entries without a volume.
func (l *listing) add(entry []byte) error {
	var handle []byte
	reported := false
	err := eachField(entry, func(field protowire.Number, value []byte) error {
		reported = reported || field == statusField
		if field != volumeField {
			return nil
		}
		return eachField(value, func(within protowire.Number, value []byte) error {
			if within == volumeIDField {
				handle = value
			}
			return nil
		})
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
		return eachField(value, func(within protowire.Number, id []byte) error {
			if within == nodeIDsField {
				l.addNode(&nodes, id)
			}
			return nil
		})
	})
	l.published[string(handle)] = nodes
	if err == nil && l.size > maxListing {
		err = errTooMuch
	}
	return err
}

// addNode adds a node of a volume.
func (l *listing) addNode(nodes *PublishedNodes, id []byte) {
	node, known := l.nodes[string(id)]
	if !known {
		node = string(id)
		l.nodes[node] = node
		l.size += len(id) + textOverhead
	}
	if len(nodes.IDs) <= fewNodes && nodes.Has(node) {
		return
	}
	nodes.IDs = append(nodes.IDs, node)
	l.size += publishedOverhead
}

// Numbers of fields in csi.proto.
const (
	entriesField   protowire.Number = 1 // of ListVolumesResponse
	nextTokenField protowire.Number = 2 // of ListVolumesResponse
	volumeField    protowire.Number = 1 // of Entry
	statusField    protowire.Number = 2 // of Entry
	volumeIDField  protowire.Number = 2 // of Volume
	nodeIDsField   protowire.Number = 1 // of VolumeStatus
)

// eachField calls f for each string or message in an encoded message, until f returns an error. value is a part of
// message.
func eachField(message []byte, f func(field protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		length := n
		if n >= 0 {
			length = protowire.ConsumeFieldValue(field, kind, message[n:])
		}
		if length < 0 {
			return status.Errorf(codes.Internal, "the driver's answer is malformed: %v", protowire.ParseError(length))
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[n:])
			if err := f(field, value); err != nil {
				return err
			}
		}
		message = message[n+length:]
	}
	return nil
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
