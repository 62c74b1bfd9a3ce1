package tlsproxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
)

const (
	// maxFrame is the largest payload of a frame, in bytes: the default of HTTP/2, and no side
	// is told of more.
	maxFrame = 16 << 10
	// headerLength is that of the header of each frame (RFC 9113, section 4.1).
	headerLength = 9
	// maxHeaders bounds the headers of a call, in bytes as SETTINGS_MAX_HEADER_LIST_SIZE counts.
	maxHeaders = 64 << 10
	// bufferSize of a frameReader holds the largest frame.
	bufferSize = 32 << 10
)

// frameReader reads the frames that one side sends.
type frameReader struct {
	from   side
	b      *bufio.Reader
	framer *http2.Framer // decodes frames; raw ones bypass it
}

func newFrameReader(from side, conn net.Conn) *frameReader {
	r := &frameReader{from: from, b: bufio.NewReaderSize(conn, bufferSize)}
	r.framer = http2.NewFramer(nil, r.b)
	r.framer.SetMaxReadFrameSize(maxFrame)
	r.framer.MaxHeaderListSize = maxHeaders
	return r
}

// readPreface reads the first bytes of a client.
func (r *frameReader) readPreface() error {
	b := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(r.b, b); err != nil {
		return r.failed(err)
	}
	if string(b) != http2.ClientPreface {
		return fmt.Errorf("%s does not speak HTTP/2", r.from)
	}
	return nil
}

// header returns the header of the next frame, which stays to be read.
func (r *frameReader) header() (http2.FrameHeader, error) {
	b, err := r.b.Peek(headerLength)
	if err != nil {
		return http2.FrameHeader{}, r.failed(err)
	}
	h, err := http2.ReadFrameHeader(bytes.NewReader(b))
	if err == nil && h.Length > maxFrame {
		err = fmt.Errorf("%s has sent a frame of %d bytes, more than %d", r.from, h.Length, maxFrame)
	}
	return h, err
}

// decode reads the next frame.
func (r *frameReader) decode() (http2.Frame, error) {
	f, err := r.framer.ReadFrame()
	if _, ok := errors.AsType[http2.StreamError](err); err == nil || ok {
		return f, err // the next frame can be read
	}
	return nil, r.failed(err)
}

// raw returns the bytes of the next frame, which stays to be read. They hold until then.
func (r *frameReader) raw(h http2.FrameHeader) ([]byte, error) {
	b, err := r.b.Peek(headerLength + int(h.Length))
	if err != nil {
		return nil, r.failed(err)
	}
	return b, nil
}

// skip reads the next frame and drops it.
func (r *frameReader) skip(h http2.FrameHeader) error {
	if _, err := r.b.Discard(headerLength + int(h.Length)); err != nil {
		return r.failed(err)
	}
	return nil
}

// hasFrame reports whether the next frame can be read without blocking.
func (r *frameReader) hasFrame() bool {
	if r.b.Buffered() < headerLength {
		return false
	}
	h, err := r.header()
	return err != nil || r.b.Buffered() >= headerLength+int(h.Length)
}

func (r *frameReader) failed(err error) error {
	if _, ok := errors.AsType[http2.ConnectionError](err); ok {
		return fmt.Errorf("%s has broken the HTTP/2 protocol: %w", r.from, errors.Join(err, r.framer.ErrorDetail()))
	}
	return fmt.Errorf("%s has ended the connection", r.from)
}
