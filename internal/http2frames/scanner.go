// Package http2frames finds the frames of HTTP/2 in bytes that are passed on, however
// these are cut, without keeping their payload.
package http2frames

import (
	"bytes"

	"golang.org/x/net/http2"
)

// headerLength is that of the header of each frame (RFC 9113, section 4.1).
const headerLength = 9

// Scanner follows the frames in one direction of a connection. The zero value is that of a
// server; NewClientScanner makes one for a client.
type Scanner struct {
	skip   int    // bytes to come before the next header
	header []byte // of the next frame, as far as it has arrived
	frame  http2.FrameHeader
	begun  bool // the header of frame was completed by the last Advance
}

// NewClientScanner returns a Scanner that expects a client's preface before the frames.
func NewClientScanner() *Scanner { return &Scanner{skip: len(http2.ClientPreface)} }

// Advance takes in the next bytes, up to the end of a header or of a payload. It returns
// how many these are: at least one, unless b is empty.
func (s *Scanner) Advance(b []byte) int {
	s.begun = false
	if s.skip > 0 {
		n := min(s.skip, len(b))
		s.skip -= n
		return n
	}
	n := min(headerLength-len(s.header), len(b))
	if s.header = append(s.header, b[:n]...); len(s.header) < headerLength {
		return n
	}
	s.frame, _ = http2.ReadFrameHeader(bytes.NewReader(s.header)) // which has all that it reads
	s.header, s.skip, s.begun = s.header[:0], int(s.frame.Length), true
	return n
}

// Begun returns the header of the frame that the last Advance began, if it began one.
func (s *Scanner) Begun() (header http2.FrameHeader, ok bool) { return s.frame, s.begun }

// AtEnd reports whether a frame has ended and the next one has not begun.
func (s *Scanner) AtEnd() bool {
	return s.skip == 0 && len(s.header) == 0 && s.frame != http2.FrameHeader{}
}

// Count returns how many frames of a type begin in the next bytes, and takes these in.
func (s *Scanner) Count(b []byte, kind http2.FrameType) (count int) {
	for len(b) > 0 {
		b = b[s.Advance(b):]
		if header, ok := s.Begun(); ok && header.Type == kind {
			count++
		}
	}
	return count
}
