package tlsproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// frameWriter writes frames to one side. Both goroutines of a relay use it.
type frameWriter struct {
	to side

	mu     sync.Mutex    // held from the first to the last frame of a block of headers
	b      *bufio.Writer // guarded by mu
	framer *http2.Framer // writes to b; guarded by mu
	begun  bool          // SETTINGS, which is the first frame, was written; guarded by mu
	asked  bool          // askToGo was called; guarded by mu
	goAway bool          // a GOAWAY was written; guarded by mu
}

func newFrameWriter(to side, conn net.Conn) *frameWriter {
	b := bufio.NewWriterSize(conn, bufferSize)
	return &frameWriter{to: to, b: b, framer: http2.NewFramer(b, nil)}
}

// write calls f with the lock held. With flush it sends at once what is in the buffer then, and
// blocks while the other side does not read.
func (w *frameWriter) write(flush bool, f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := f()
	if err == nil && flush {
		err = w.b.Flush()
	}
	return w.failed(err)
}

// raw writes bytes that are whole frames.
func (w *frameWriter) raw(b []byte) error {
	return w.write(false, func() error {
		_, err := w.b.Write(b)
		return err
	})
}

// flush sends what is in the buffer.
func (w *frameWriter) flush() error { return w.write(true, func() error { return nil }) }

// returnWindow tells the other side that data of a length, which was not forwarded, does not
// count any more.
func (w *frameWriter) returnWindow(length uint32) error {
	if length == 0 {
		return nil
	}
	return w.write(true, func() error { return w.framer.WriteWindowUpdate(0, length) })
}

// reset tells the other side that a stream has ended.
func (w *frameWriter) reset(id uint32, code http2.ErrCode) error {
	return w.write(true, func() error { return w.framer.WriteRSTStream(id, code) })
}

// headers writes the headers of a call.
func (w *frameWriter) headers(id uint32, block []byte, end bool) error {
	return w.write(false, func() error { return w.block(id, block, end) })
}

// block writes a block of headers. The caller holds mu.
func (w *frameWriter) block(id uint32, block []byte, end bool) error {
	first := block[:min(len(block), maxFrame)]
	block = block[len(first):]
	err := w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: end, EndHeaders: len(block) == 0})
	for err == nil && len(block) > 0 {
		next := block[:min(len(block), maxFrame)]
		block = block[len(next):]
		err = w.framer.WriteContinuation(id, len(block) == 0, next)
	}
	return err
}

// answer ends a call that is not forwarded. Its fields are literals that no table keeps: the
// driver's headers on the same connection use the client's table.
func (w *frameWriter) answer(id uint32, code codes.Code, text string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":status", Value: "200"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "grpc-status", Value: strconv.Itoa(int(code))},
		{Name: "grpc-message", Value: url.PathEscape(text)},
	} {
		f.Sensitive = true
		if err := encoder.WriteField(f); err != nil {
			return fmt.Errorf("encode headers: %w", err)
		}
	}
	return w.write(true, func() error {
		if err := w.block(id, block.Bytes(), true); err != nil {
			return err
		}
		return w.framer.WriteRSTStream(id, http2.ErrCodeNo) // the rest of the request is not needed
	})
}

// settings writes SETTINGS. A GOAWAY that was due before the first follows.
func (w *frameWriter) settings(f *http2.SettingsFrame) error {
	return w.write(false, func() error {
		if f.IsAck() {
			return w.framer.WriteSettingsAck()
		}
		err := w.framer.WriteSettings(keepSettings(w.to, f, !w.begun)...)
		w.begun = true
		if err == nil && w.asked && !w.goAway {
			err = w.writeGoAway()
		}
		return err
	})
}

// askToGo asks a client to make further calls on another connection, unless the driver has
// done so: a second GOAWAY must not allow more streams than the first. It blocks while the
// client does not read.
func (w *frameWriter) askToGo() {
	// A connection that is broken ends by itself.
	_ = w.write(true, func() error {
		w.asked = true
		if !w.begun || w.goAway {
			return nil
		}
		return w.writeGoAway()
	})
}

// writeGoAway writes a GOAWAY. Calls that the client has sent already are still answered: the
// last stream ID is the highest possible.
func (w *frameWriter) writeGoAway() error {
	w.goAway = true
	return w.framer.WriteGoAway(1<<31-1, http2.ErrCodeNo, nil)
}

// noGoAway notes that a GOAWAY of the driver follows.
func (w *frameWriter) noGoAway() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goAway = true
}

func (w *frameWriter) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s has ended the connection", w.to)
}
