package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// Options of a Backend.
type Options struct {
	// Name is the driver's name, as GetPluginInfo returns it. Required.
	Name string
	// VendorVersion is what GetPluginInfo returns. Empty means "0.0.0".
	VendorVersion string
	// Capabilities that the driver announces. Nil means DefaultCapabilities,
	// empty means none.
	Capabilities []Capability
	// StrictVolumes answers NotFound to a publish of a volume that neither
	// CreateVolume nor Knobs.GainVolumes has made. Otherwise the first publish
	// makes the volume.
	StrictVolumes bool
	// Nodes are the known node IDs: a publish to another node is answered
	// NotFound. Empty means that every node ID is known.
	Nodes []string
	// CountersOnly keeps no list of calls and no requests, so that the memory
	// that the books take does not grow with the calls.
	CountersOnly bool
	// Observe (may be nil) is told the begin and the end of each publish and unpublish, and each change of what is
	// attached, in the order in which they happen. It must return at once and not use the Backend.
	Observe func(Event)
	// StateFile keeps the storage beyond the end of the process. The Backend
	// starts with its content. Nil means memory only. The caller closes it.
	StateFile *StateFile
}

// Backend is the storage behind a CSI driver: volumes, attachments, knobs and
// books. It implements csi.IdentityServer and csi.ControllerServer. All its
// methods may be called at any time from any goroutine. It starts no goroutines.
type Backend struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	version   string
	strict    bool
	nodes     map[string]bool
	stateFile *StateFile
	observe   func(Event) // may be nil

	mu        sync.Mutex // guards all below
	behaviour behaviour
	storage   *storage
	books     *bookkeeper
	attached  map[string]map[string]Attachment // for snapshots; nil after a change
	effecting *call                            // changes the storage now; nil: a knob does
	changes   uint64
	changed   chan struct{} // closed and replaced on each change
}

// New makes a Backend.
func New(o Options) (*Backend, error) {
	if o.Name == "" {
		return nil, errors.New("make backend: the driver has no name: set Options.Name")
	}
	if err := checkCapabilities(o.Capabilities); err != nil {
		return nil, fmt.Errorf("make backend: %w", err)
	}
	if o.Capabilities == nil {
		o.Capabilities = DefaultCapabilities()
	}
	if o.VendorVersion == "" {
		o.VendorVersion = "0.0.0"
	}
	b := &Backend{
		version:   o.VendorVersion,
		strict:    o.StrictVolumes,
		nodes:     map[string]bool{},
		stateFile: o.StateFile,
		observe:   o.Observe,
		storage:   newStorage(),
		books:     newBookkeeper(o.CountersOnly),
		changed:   make(chan struct{}),
	}
	b.books.violated = b.tellViolation
	b.behaviour.latency = map[Method]Latency{}
	b.behaviour.apply(Knobs{Name: o.Name, Capabilities: o.Capabilities})
	for _, n := range o.Nodes {
		b.nodes[n] = true
	}
	if o.StateFile != nil {
		b.storage = o.StateFile.restore()
	}
	return b, nil
}

// Set applies knobs. With an error in them it changes nothing. It returns when
// the StateFile, if there is one, has the change.
func (b *Backend) Set(k Knobs) error {
	if err := k.check(); err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	b.mu.Lock()
	b.behaviour.apply(k)
	b.changeStorage(k)
	b.note()
	b.mu.Unlock()
	if err := b.flush(); err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	return nil
}

// SetJSON applies knobs in JSON, as Set, and returns a text that says what has changed.
func (b *Backend) SetJSON(data []byte) (string, error) {
	k, err := ParseKnobs(data)
	if err != nil {
		return "", err
	}
	before := b.Books()
	if err := b.Set(k); err != nil {
		return "", err
	}
	return k.Describe(before), nil
}

// changeStorage applies the knobs that change the storage without a call. Called
// with mu held.
func (b *Backend) changeStorage(k Knobs) {
	for _, a := range k.LoseAttachments {
		b.record(b.storage.detach(a.Volume, a.Node))
	}
	for _, v := range k.LoseVolumes {
		b.record(b.storage.remove(v))
	}
	for _, v := range k.GainVolumes {
		_, rs := b.storage.add(v)
		b.record(rs)
	}
	for _, a := range k.GainAttachments {
		b.record(b.storage.gain(a.Volume, a.Node))
	}
}

// Books returns a snapshot of the books.
func (b *Backend) Books() Books {
	books, _ := b.look()
	return books
}

// Wait blocks until done is true of the books. It asks at once, and after changes
// with the latest books. When ctx ends first, the error summarizes the books.
func (b *Backend) Wait(ctx context.Context, done func(Books) bool) error {
	for {
		books, changed := b.look()
		if done(books) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the books of %s (%d volumes attached, %d calls in flight): %w",
				books.Driver, len(books.Attached), books.InFlight.Now, ctx.Err())
		}
	}
}

// waitVersion blocks until the version of the books differs from seen, or ctx ends.
// It takes no snapshots.
func (b *Backend) waitVersion(ctx context.Context, seen uint64) {
	for {
		b.mu.Lock()
		version, changed := b.changes, b.changed
		b.mu.Unlock()
		if version != seen {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// look returns a snapshot, and a channel that the next change closes.
func (b *Backend) look() (Books, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached == nil {
		b.attached = b.storage.attached()
	}
	books := b.books.snapshot()
	books.Driver, books.Version = b.behaviour.name, b.changes
	books.Attached, books.Volumes = b.attached, len(b.storage.volumes)
	return books, b.changed
}

// LastPublish returns the latest publish request for the volume; nil if there was
// none or with Options.CountersOnly. The caller must not change it.
func (b *Backend) LastPublish(volume string) *csi.ControllerPublishVolumeRequest {
	req, _ := b.lastRequest(ControllerPublishVolume, volume).(*csi.ControllerPublishVolumeRequest)
	return req
}

// LastUnpublish returns the latest unpublish request for the volume; nil if there
// was none or with Options.CountersOnly. The caller must not change it.
func (b *Backend) LastUnpublish(volume string) *csi.ControllerUnpublishVolumeRequest {
	req, _ := b.lastRequest(ControllerUnpublishVolume, volume).(*csi.ControllerUnpublishVolumeRequest)
	return req
}

func (b *Backend) lastRequest(m Method, volume string) proto.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.books.requests[requestKey{m, volume}]
}

// note wakes all waits. Called with mu held; closing a channel does not block.
func (b *Backend) note() {
	b.changes++
	close(b.changed)
	b.changed = make(chan struct{})
}

// record keeps changes of the storage for the StateFile, which flush writes later.
// Called with mu held, so that they stay in order.
func (b *Backend) record(rs []Record) {
	if len(rs) == 0 {
		return
	}
	b.attached = nil
	b.tellChanges(rs)
	if b.stateFile != nil {
		b.stateFile.add(rs)
	}
}

// flush makes all changes durable that any call has recorded so far.
func (b *Backend) flush() error {
	if b.stateFile == nil {
		return nil
	}
	return b.stateFile.flush()
}
