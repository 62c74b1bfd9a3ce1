package fakecsi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// Options of a Backend.
type Options struct {
	// Name is the driver's name, as GetPluginInfo tells it. Required.
	Name string
	// VendorVersion is told by GetPluginInfo. Empty means "0.0.0".
	VendorVersion string
	// Capabilities that the driver announces. Nil means DefaultCapabilities,
	// empty means none.
	Capabilities []Capability
	// StrictVolumes answers NotFound to a publish of a volume that was not made
	// by CreateVolume or Knobs.GainVolumes. Otherwise a volume comes into being
	// at its first publish.
	StrictVolumes bool
	// Nodes are the ids of the nodes there are: a publish to another one is
	// answered NotFound. Empty means that every node id is right.
	Nodes []string
	// CountersOnly keeps no list of calls and no requests, so that the memory
	// that the books take does not grow with the calls.
	CountersOnly bool
	// StateFile keeps the storage across the end of the process. The Backend
	// starts with what it holds. Nil means memory only. The caller closes it.
	StateFile *StateFile
}

// Backend is the storage behind a CSI driver: volumes, what is attached where,
// the knobs and the books. It implements csi.IdentityServer and
// csi.ControllerServer; a Server serves it, and tests in a testing/synctest
// bubble call its methods directly. All its methods may be called at any time
// from any goroutine; it has no goroutines of its own.
type Backend struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	version   string
	strict    bool
	nodes     map[string]bool
	stateFile *StateFile

	mu        sync.Mutex // guards all below
	behaviour behaviour
	storage   *storage
	books     *bookkeeper
	attached  map[string]map[string]Attachment // for snapshots; nil after a change
	changes   uint64
	changed   chan struct{} // closed and replaced on each change
}

// New makes a Backend. It starts nothing.
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
		storage:   newStorage(),
		books:     newBookkeeper(o.CountersOnly),
		changed:   make(chan struct{}),
	}
	b.behaviour.latency = map[Method]Latency{}
	b.behaviour.turn(Knobs{Name: o.Name, Capabilities: o.Capabilities})
	for _, n := range o.Nodes {
		b.nodes[n] = true
	}
	if o.StateFile != nil {
		b.storage = o.StateFile.restore()
	}
	return b, nil
}

// Set turns knobs. On an error in them nothing is changed. With a StateFile it
// returns when the change is in it.
func (b *Backend) Set(k Knobs) error {
	if err := k.check(); err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	b.mu.Lock()
	b.behaviour.turn(k)
	b.meddle(k)
	b.note()
	b.mu.Unlock()
	if err := b.flush(); err != nil {
		return fmt.Errorf("set knobs: %w", err)
	}
	return nil
}

// meddle changes the storage behind the CO's back. Called with mu held.
func (b *Backend) meddle(k Knobs) {
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
		at := b.storage.volumes[a.Volume].nodes[a.Node]
		if others, _ := b.storage.conflict(a.Volume, a.Node, at); len(others) > 0 {
			b.books.violate(Violation{
				Kind: AttachedTwice, Time: time.Now(), Volume: a.Volume,
				Nodes: append([]string{a.Node}, others...), Detail: "by a knob",
			})
		}
	}
}

// Books is a snapshot of the books.
func (b *Backend) Books() Books {
	books, _ := b.look()
	return books
}

// Wait returns nil as soon as done says so of the books. It looks at once and
// then on each change, at the latest state. When ctx ends first it returns an
// error that says where things stood.
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

// waitVersion returns when the books have another version than seen, or ctx
// ends. It takes no snapshots meanwhile.
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

// look is a snapshot, and what is closed when it is outdated.
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

// LastPublish is the latest publish request for the volume, nil if there was
// none or with Options.CountersOnly. The caller must not change it.
func (b *Backend) LastPublish(volume string) *csi.ControllerPublishVolumeRequest {
	req, _ := b.lastRequest(ControllerPublishVolume, volume).(*csi.ControllerPublishVolumeRequest)
	return req
}

// LastUnpublish is the latest unpublish request for the volume, nil if there
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

// note tells that something changed. Called with mu held; closing a channel
// does not block.
func (b *Backend) note() {
	b.changes++
	close(b.changed)
	b.changed = make(chan struct{})
}

// record notes changes of the storage. Called with mu held, which puts them in
// order; the StateFile writes them later, in flush.
func (b *Backend) record(rs []Record) {
	if len(rs) == 0 {
		return
	}
	b.attached = nil
	if b.stateFile != nil {
		b.stateFile.add(rs)
	}
}

// flush makes durable what was recorded so far, by this call or another whose
// effect this one has seen.
func (b *Backend) flush() error {
	if b.stateFile == nil {
		return nil
	}
	return b.stateFile.flush()
}
