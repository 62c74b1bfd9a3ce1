package tlsproxy

import (
	"io"
	"slices"
	"sync"

	"golang.org/x/net/http2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/http2frames"
)

// goAway asks a client to make further calls on another connection. Calls that the client has
// sent already are still answered: the last stream ID is the highest possible.
var goAway = []byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// clientWriter writes the data of a driver to a client. Between two frames it can write a
// GOAWAY. It is safe for concurrent use.
type clientWriter struct {
	mu     sync.Mutex // held during writes, to keep them in order
	to     io.Writer  // guarded by mu
	frames frames     // guarded by mu
	asked  bool       // askToGo was called; guarded by mu
	sent   bool       // the GOAWAY was sent; guarded by mu
}

// Write implements io.Writer.
func (w *clientWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := b
	for at := 0; at < len(b); {
		at += w.frames.advance(b[at:])
		if w.asked && !w.sent && w.frames.canGoAway() {
			w.sent = true
			out = slices.Concat(b[:at], goAway, b[at:])
		}
	}
	if _, err := w.to.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// askToGo sends the GOAWAY now, or has Write send it at the end of the current frame. It
// blocks while the client does not read.
func (w *clientWriter) askToGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = true
	if w.sent || !w.frames.canGoAway() {
		return
	}
	w.sent = true
	_, _ = w.to.Write(goAway) // a connection that is broken ends by itself
}

// frames parses the frames that the driver sends.
type frames struct {
	scanner http2frames.Scanner
	headers bool // within a block of headers, where no other frame is allowed
	goAway  bool // the driver has sent a GOAWAY itself, which says more than ours
}

// advance parses the next bytes, at most to the end of a frame, and returns their number.
func (f *frames) advance(b []byte) int {
	n := f.scanner.Advance(b)
	if header, ok := f.scanner.Begun(); ok {
		switch header.Type {
		case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
			f.headers = !header.Flags.Has(http2.FlagHeadersEndHeaders)
		case http2.FrameGoAway:
			f.goAway = true
		}
	}
	return n
}

// canGoAway reports whether our GOAWAY may be sent now: between two frames, and after the
// first frame, which is the SETTINGS.
func (f *frames) canGoAway() bool {
	return f.scanner.AtEnd() && !f.headers && !f.goAway
}
