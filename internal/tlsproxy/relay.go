package tlsproxy

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// relay forwards the frames of one client and its connection to the driver. Stream IDs,
// flow control and the contents of calls are the same on both sides, so that a relay never
// holds more than a few frames. It decodes the headers of calls and encodes them again: calls
// that are not forwarded leave gaps in the client's header table. It answers these itself.
type relay struct {
	streams  streams
	readers  [2]*frameReader // by the side that sends
	writers  [2]*frameWriter // by the side that receives
	encoder  *hpack.Encoder  // of headers for the driver; of the client's pump
	block    bytes.Buffer    // written by encoder
	activity atomic.Int64    // frames so far
	// refused is called for each call that is not forwarded, or not to its end. It must be safe
	// for concurrent use.
	refused func(problem, method string)
}

func newRelay(client, driver net.Conn, refused func(problem, method string)) *relay {
	r := &relay{
		streams: streams{open: map[uint32]stream{}},
		readers: [2]*frameReader{newFrameReader(clientSide, client), newFrameReader(driverSide, driver)},
		writers: [2]*frameWriter{newFrameWriter(clientSide, client), newFrameWriter(driverSide, driver)},
		refused: refused,
	}
	// The client learns of no other table size: see keepSettings.
	r.readers[clientSide].framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	r.encoder = hpack.NewEncoder(&r.block)
	r.encoder.SetMaxDynamicTableSize(0) // so that the driver's table size does not matter
	return r
}

// pump forwards what one side sends until the connection ends, and returns the reason.
func (r *relay) pump(from side) error {
	in, out := r.readers[from], r.writers[from.other()]
	if from == clientSide {
		if err := in.readPreface(); err != nil {
			return err
		}
		if err := out.raw([]byte(http2.ClientPreface)); err != nil {
			return err
		}
	}
	for {
		h, err := in.header()
		if err != nil {
			return err
		}
		if err := r.forward(from, h); err != nil {
			return err
		}
		r.activity.Add(1)
		if !in.hasFrame() {
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}

// forward reads the frame with a header, and forwards it if the other side may see it.
func (r *relay) forward(from side, h http2.FrameHeader) error {
	in, out := r.readers[from], r.writers[from.other()]
	pass := false
	switch h.Type {
	case http2.FrameHeaders:
		if from == clientSide {
			return r.call(h)
		}
		return r.answer(h)
	case http2.FrameData:
		return r.data(from, h)
	case http2.FrameSettings:
		return r.settings(from)
	case http2.FrameRSTStream:
		pass = r.streams.reset(h.StreamID)
	case http2.FrameWindowUpdate:
		pass = h.StreamID == 0 || r.streams.isOpen(h.StreamID)
	case http2.FramePing:
		pass = true
	case http2.FrameGoAway:
		pass = true
		out.noGoAway()
	case http2.FramePushPromise, http2.FrameContinuation:
		return fmt.Errorf("%s has broken the HTTP/2 protocol: unexpected frame %s", from, h.Type)
	}
	if !pass {
		return in.skip(h)
	}
	return r.copy(in, out, h)
}

// copy forwards a frame unchanged.
func (r *relay) copy(in *frameReader, out *frameWriter, h http2.FrameHeader) error {
	b, err := in.raw(h)
	if err != nil {
		return err
	}
	if err := out.raw(b); err != nil {
		return err
	}
	return in.skip(h)
}

// call forwards the headers of a call, or answers the call.
func (r *relay) call(h http2.FrameHeader) error {
	id, in, back := h.StreamID, r.readers[clientSide], r.writers[clientSide]
	if err := r.streams.claim(id); err != nil {
		return fmt.Errorf("%s has broken the HTTP/2 protocol: %w", clientSide, err)
	}
	f, err := in.decode()
	if invalid, ok := errors.AsType[http2.StreamError](err); ok {
		return back.reset(id, invalid.Code)
	}
	if err != nil {
		return err
	}
	headers, ok := f.(*http2.MetaHeadersFrame)
	if !ok {
		return fmt.Errorf("%s has broken the HTTP/2 protocol: unexpected frame %s", clientSide, f.Header().Type)
	}
	method := headers.PseudoValue("path")
	limit, forwarded := allowed[method]
	switch {
	case headers.Truncated:
		r.refused("its headers are too large", method)
		return back.answer(id, codes.ResourceExhausted, fmt.Sprintf("csi-attach-hub proxy forwards at most %d bytes of headers", maxHeaders))
	case !forwarded:
		r.refused("it is not needed for attaching", method)
		return back.answer(id, codes.PermissionDenied, refusal(method))
	case !r.streams.begin(id, limit):
		r.refused("too many calls of this client are in flight", method)
		return back.reset(id, http2.ErrCodeRefusedStream)
	}
	if headers.StreamEnded() {
		r.streams.end(clientSide, id)
	}
	r.block.Reset()
	for _, field := range headers.Fields {
		if err := r.encoder.WriteField(field); err != nil {
			return fmt.Errorf("encode headers: %w", err)
		}
	}
	return r.writers[driverSide].headers(id, r.block.Bytes(), headers.StreamEnded())
}

// answer forwards a block of headers of the driver. Also those of a stream that is not open any
// more: the client's table needs them.
func (r *relay) answer(h http2.FrameHeader) error {
	in, out, id := r.readers[driverSide], r.writers[clientSide], h.StreamID
	if h.Flags.Has(http2.FlagHeadersEndStream) {
		r.streams.end(driverSide, id)
	}
	out.mu.Lock() // no other frame may come within the block
	defer out.mu.Unlock()
	for {
		b, err := in.raw(h)
		if err != nil {
			return err
		}
		if _, err := out.b.Write(b); err != nil {
			return out.failed(err)
		}
		if err := in.skip(h); err != nil || h.Flags.Has(http2.FlagHeadersEndHeaders) {
			return err
		}
		if h, err = in.header(); err != nil {
			return err
		}
		if h.Type != http2.FrameContinuation || h.StreamID != id {
			return fmt.Errorf("%s has broken the HTTP/2 protocol: frame %s within headers", driverSide, h.Type)
		}
	}
}

// data forwards data of a call that is open. Data of other calls was under way when the call
// ended, and is dropped.
func (r *relay) data(from side, h http2.FrameHeader) error {
	in, out, back := r.readers[from], r.writers[from.other()], r.writers[from]
	open, beyond := r.streams.take(from, h.StreamID, h.Length)
	if open && !beyond {
		if h.Flags.Has(http2.FlagDataEndStream) {
			r.streams.end(from, h.StreamID)
		}
		return r.copy(in, out, h)
	}
	if err := in.skip(h); err != nil {
		return err
	}
	if beyond {
		r.refused(from.String()+" has sent too much data", "")
		r.streams.reset(h.StreamID)
		// gRPC clients translate the code into ResourceExhausted.
		if err := r.writers[clientSide].reset(h.StreamID, http2.ErrCodeEnhanceYourCalm); err != nil {
			return err
		}
		if err := r.writers[driverSide].reset(h.StreamID, http2.ErrCodeCancel); err != nil {
			return err
		}
	}
	return back.returnWindow(h.Length)
}

// settings forwards SETTINGS.
func (r *relay) settings(from side) error {
	f, err := r.readers[from].decode()
	if err != nil {
		return err
	}
	settings, ok := f.(*http2.SettingsFrame)
	if !ok {
		return fmt.Errorf("%s has broken the HTTP/2 protocol: unexpected frame %s", from, f.Header().Type)
	}
	return r.writers[from.other()].settings(settings)
}
