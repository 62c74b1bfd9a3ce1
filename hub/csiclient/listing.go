package csiclient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
	"unique"

	"github.com/container-storage-interface/spec/lib/go/csi"
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
	// The memory of a volume, and of a volume on a node, besides texts, in bytes.
	volumeOverhead, nodeOverhead = 80, 16
	// maxPages bounds the pages of one listing: a driver may always give another token.
	maxPages = 10_000
)

// pageSlots bounds the pages that the drivers of the process send at once: they share its memory.
var pageSlots = make(chan struct{}, 4)

// The errors of a listing that would never end, or take too much memory.
var (
	errRepeated = errors.New("the driver has answered with a next_token that it gave before, so that its list would never end")
	errEndless  = fmt.Errorf("the driver has answered with %d pages and another next_token: raise drift.pageSize, or correct the driver if its list never ends", maxPages)
	errTooMuch  = fmt.Errorf("the driver's list takes more than %d MiB of memory", maxListing>>20)
)

// ListVolumes reads all pages of the driver's volumes, with at most pageSize volumes on a page; 0 leaves that to the
// driver. It returns the whole listing or an error, never a part. The error of a call is a gRPC status with the number
// of the page and a sanitized message of any length; its code is Unavailable if the Session ended meanwhile. After a page that the
// driver answers with Aborted (CSI spec: the token is not valid any more) the listing starts
// again, once. ListVolumes blocks until the last page, or until ctx ends. Each page waits for one of the slots of the process; took is the
// time of the driver's own pages, without these waits.
func (s *Session) ListVolumes(ctx context.Context, pageSize int) (published Published, took time.Duration, err error) {
	published, err = s.list(ctx, pageSize, &took)
	if status.Code(err) == codes.Aborted {
		if published, err = s.list(ctx, pageSize, &took); status.Code(err) == codes.Aborted {
			err = fmt.Errorf("aborted, also after a start from the beginning: %w", err)
		}
	}
	if err != nil {
		return nil, took, fmt.Errorf("list volumes: %w", err)
	}
	return published, took, nil
}

// list reads the pages from the first to the last, and adds their time to took. After a page that is too large it reads half
// as many volumes, once.
func (s *Session) list(ctx context.Context, pageSize int, took *time.Duration) (Published, error) {
	l, halved := listing{published: Published{}, tokens: map[string]bool{}}, false
	for token, page := "", 1; ; page++ {
		answer, err := s.listPage(ctx, token, pageSize, took)
		if _, large := errors.AsType[largeAnswer](err); large && !halved && pageSize > 1 {
			pageSize, halved = pageSize/2, true
			answer, err = s.listPage(ctx, token, pageSize, took)
		}
		if err == nil {
			token, err = l.take(answer)
		}
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", page, sanitizeError(err))
		}
		if token == "" {
			l.compact()
			return l.published, nil
		}
	}
}

// listPage reads one page. Each page counts as a call of its own, so that a listing does
// not delay a Close until its last page. The page stays encoded: decoded, a page of empty entries would take fifty times its size.
func (s *Session) listPage(ctx context.Context, token string, pageSize int, took *time.Duration) (page []byte, err error) {
	select {
	case pageSlots <- struct{}{}:
		defer func() { <-pageSlots }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	began := time.Now()
	defer func() { *took += time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	request := &csi.ListVolumesRequest{MaxEntries: int32(pageSize), StartingToken: token}
	var answer emptypb.Empty // keeps all fields as they were sent
	err = s.conn.Invoke(ctx, csi.Controller_ListVolumes_FullMethodName, request, &answer)
	return answer.ProtoReflect().GetUnknown(), err
}

// listing joins the pages of one listing.
type listing struct {
	published Published
	tokens    map[string]bool // of the pages so far
	size      int             // approximate, in memory, in bytes
	err       error           // why the listing cannot go on
}

// take adds an encoded page, and returns the token of the next page. It returns an error if the page is malformed, or
// if the pages would never end or take too much memory.
func (l *listing) take(page []byte) (next string, err error) {
	for field, value := range l.fields(page) {
		switch field {
		case entriesField:
			l.add(value)
		case nextTokenField:
			next = string(value)
		}
	}
	l.grow(len(next))
	switch {
	case l.err != nil || next == "":
		return "", l.err
	case l.tokens[next]:
		return "", errRepeated
	case len(l.tokens) >= maxPages:
		return "", errEndless
	}
	l.tokens[next] = true
	return next, nil
}

// add adds an encoded entry. Some drivers list a volume again for each of its nodes, or on the next page after a
// change; some have entries without a volume.
func (l *listing) add(entry []byte) {
	var handle, nodes []byte
	reported := false
	for field, value := range l.fields(entry) {
		switch field {
		case volumeField:
			for within, value := range l.fields(value) {
				if within == volumeIDField {
					handle = value
				}
			}
		case statusField:
			reported, nodes = true, append(nodes, value...)
		}
	}
	if len(handle) == 0 {
		return
	}
	volume, listed := l.published[string(handle)]
	if !listed {
		l.grow(len(handle) + volumeOverhead)
	}
	volume.Unknown = volume.Unknown || !reported
	for field, id := range l.fields(nodes) {
		if field == nodeIDsField {
			volume.IDs = append(volume.IDs, unique.Make(string(id)).Value())
			l.grow(len(id) + nodeOverhead)
		}
	}
	l.published[string(handle)] = volume
}

// grow notes that the listing takes so many bytes more.
func (l *listing) grow(bytes int) {
	if l.size += bytes; l.size > maxListing && l.err == nil {
		l.err = errTooMuch
	}
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

// fields yields each string or message in an encoded message, until the listing has an error. The values are parts of
// message.
func (l *listing) fields(message []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(message) > 0 && l.err == nil {
			field, kind, tag := protowire.ConsumeTag(message)
			_, _, length := protowire.ConsumeField(message)
			if length < 0 {
				l.err = status.Errorf(codes.Internal, "the driver's answer is malformed: %v", protowire.ParseError(length))
				return
			}
			value, _ := protowire.ConsumeBytes(message[tag:length])
			if kind == protowire.BytesType && !yield(field, value) {
				return
			}
			message = message[length:]
		}
	}
}

// compact drops repeated node IDs.
func (l *listing) compact() {
	for handle, volume := range l.published {
		if len(volume.IDs) > 1 {
			slices.Sort(volume.IDs)
			volume.IDs = slices.Clip(slices.Compact(volume.IDs))
			l.published[handle] = volume
		}
	}
}
