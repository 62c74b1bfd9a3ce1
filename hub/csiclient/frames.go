package csiclient

import (
	"fmt"

	"golang.org/x/net/http2"

	"github.com/csi-attach-hub/csi-attach-hub/internal/http2frames"
)

const (
	// An answer may have fewFrames DATA frames, and one more for each frameBytes of it. gRPC keeps each frame
	// apart until the answer is whole: in frames of one byte, an answer takes twenty times its size.
	fewFrames, frameBytes = 64, 256
	// maxUnfinished bounds the answers that have begun and never ended: of calls that timed out meanwhile.
	maxUnfinished = 10_000
)

// The errors of a driver whose frames would take too much memory.
var (
	errSmallFrames = fmt.Errorf("the driver sends an answer in too small parts: more than %d DATA frames, and one for each %d bytes", fewFrames, frameBytes)
	errUnfinished  = fmt.Errorf("the driver has begun more than %d answers that it does not end", maxUnfinished)
)

// answerFrames limits the DATA frames of the answers on one connection. It is not safe for concurrent use.
type answerFrames struct {
	received http2frames.Scanner
	excess   map[uint32]int // by stream: bytes that its DATA frames lack to have frameBytes each
}

func newAnswerFrames() *answerFrames { return &answerFrames{excess: map[uint32]int{}} }

// check takes in the next bytes of the driver.
func (a *answerFrames) check(b []byte) error {
	for len(b) > 0 {
		b = b[a.received.Advance(b):]
		if frame, ok := a.received.Begun(); ok {
			if err := a.add(frame); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *answerFrames) add(frame http2.FrameHeader) error {
	switch frame.Type {
	case http2.FrameRSTStream:
		delete(a.excess, frame.StreamID)
		return nil
	case http2.FrameData, http2.FrameHeaders:
		if frame.Flags.Has(http2.FlagDataEndStream) { // which is FlagHeadersEndStream
			delete(a.excess, frame.StreamID)
			return nil
		}
	}
	if frame.Type != http2.FrameData {
		return nil
	}
	excess := a.excess[frame.StreamID] + frameBytes
	if !frame.Flags.Has(http2.FlagDataPadded) { // gRPC keeps the padding too
		excess -= int(frame.Length)
	}
	a.excess[frame.StreamID] = excess
	switch {
	case excess > fewFrames*frameBytes:
		return errSmallFrames
	case len(a.excess) > maxUnfinished:
		return errUnfinished
	}
	return nil
}
