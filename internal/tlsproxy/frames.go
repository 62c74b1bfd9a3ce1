package tlsproxy

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"
)

// What of HTTP/2 is known here (RFC 9113, sections 4.1 and 6).
const (
	frameHeaders      = 0x1
	framePushPromise  = 0x5
	frameGoAway       = 0x7
	frameContinuation = 0x9
	flagEndHeaders    = 0x4
)

// goAway asks a client to make further calls on another connection. It takes back no
// call that is on its way: the last stream is the highest that there can be.
var goAway = []byte{0, 0, 8, frameGoAway, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// downstream is what a driver sends to a client. It is passed on as it is; between two
// frames the client can be asked to go away. It is safe for concurrent use.
type downstream struct {
	mu     sync.Mutex // keeps what is written in order: it is held while writing
	to     io.Writer  // guarded by mu
	frames frames     // guarded by mu
	asked  bool       // somebody wants the client to go; guarded by mu
	told   bool       // the client knows; guarded by mu
}

// Write implements io.Writer.
func (d *downstream) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := b
	for at := 0; at < len(b); {
		at += d.frames.advance(b[at:])
		if d.asked && !d.told && d.frames.between() {
			d.told = true
			out = slices.Concat(b[:at], goAway, b[at:])
		}
	}
	if _, err := d.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// askToGo tells the client, now or at the end of the frame that is on its way. It
// blocks while a client does not read.
func (d *downstream) askToGo() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = true
	if d.told || !d.frames.between() {
		return
	}
	d.told = true
	_, _ = d.to.Write(goAway) // a connection that is broken ends by itself
}

// frames finds where the frames of one direction of HTTP/2 begin and end.
type frames struct {
	header  [9]byte
	have    int  // bytes of header
	left    int  // bytes of the payload still to come, once header is whole
	begun   bool // the first frame, which is the SETTINGS, has ended
	headers bool // a block of headers is not whole, and nothing may come between
	leaving bool // the other side has said GOAWAY itself, and said more than we know
}

// advance takes in what comes next, not further than to the end of a frame, and
// returns how much that was: at least one byte.
func (f *frames) advance(b []byte) int {
	n := 0
	if f.have < len(f.header) {
		n = copy(f.header[f.have:], b)
		if f.have += n; f.have < len(f.header) {
			return n
		}
		f.left = int(binary.BigEndian.Uint32(f.header[:4]) >> 8)
	}
	payload := min(f.left, len(b)-n)
	if f.left -= payload; f.left == 0 {
		f.end()
	}
	return n + payload
}

func (f *frames) end() {
	f.have, f.begun = 0, true
	switch kind, flags := f.header[3], f.header[4]; kind {
	case frameHeaders, framePushPromise, frameContinuation:
		f.headers = flags&flagEndHeaders == 0
	case frameGoAway:
		f.leaving = true
	}
}

// between says whether a GOAWAY may come here.
func (f *frames) between() bool { return f.begun && f.have == 0 && !f.headers && !f.leaving }
