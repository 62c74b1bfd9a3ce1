package fakecsi

import (
	"cmp"
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
	// CountersOnly keeps no list of calls and no requests, so that the memory
	// that the books take does not grow with the calls.
	CountersOnly bool
	// Observe (may be nil) is told the begin and the end of each publish and unpublish, and each change of what is
	// attached, in the order in which they happen. It must return at once and not use the Backend.
	Observe func(Event)
}

// Backend is the storage behind a CSI driver: volumes, attachments, knobs and
// books. It implements csi.IdentityServer and csi.ControllerServer. All its
// methods may be called at any time from any goroutine. It starts no goroutines.
type Backend struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	version string
	observe func(Event) // may be nil

	mu        sync.Mutex // guards all below
	behaviour behaviour
	storage   *storage
	books     *bookkeeper
	attached  map[string]map[string]Attachment // for snapshots; nil after a change
	effecting *call                            // changes the storage now; nil: a knob does
	changed   chan struct{}                    // closed and replaced on each change
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
	b := &Backend{
		version: cmp.Or(o.VendorVersion, "0.0.0"),
		observe: o.Observe,
		storage: newStorage(),
		books:   newBookkeeper(o.CountersOnly),
		changed: make(chan struct{}),
	}
	b.books.violated = b.tellViolation
	b.behaviour.latency = map[Method]Latency{}
	b.behaviour.apply(Knobs{Name: o.Name, Capabilities: o.Capabilities})
	return b, nil
}

// Set applies knobs. With an error in them it changes nothing.
func (b *Backend) Set(k Knobs) error {
	if err := k.check(); err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behaviour.apply(k)
	for _, a := range k.LoseAttachments {
		b.record(b.storage.detach(a.Volume, a.Node))
	}
	for _, v := range k.LoseVolumes {
		b.record(b.storage.remove(v))
	}
	for _, v := range k.GainVolumes {
		b.storage.add(v)
	}
	for _, a := range k.GainAttachments {
		b.record(b.storage.gain(a.Volume, a.Node))
	}
	b.note()
	return nil
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

// look returns a snapshot, and a channel that the next change closes.
func (b *Backend) look() (Books, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.attached == nil {
		b.attached = b.storage.attached()
	}
	books := b.books.snapshot()
	books.Driver, books.Attached = b.behaviour.name, b.attached
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
	close(b.changed)
	b.changed = make(chan struct{})
}
