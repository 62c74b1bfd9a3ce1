package tlsproxy

import (
	"fmt"
	"sync"
)

// maxStreams bounds the calls of one client at once: the largest number of workers of a hub,
// and some for its Probe and listings.
const maxStreams = 10_000 + 240

// side is one of the two ends of a relay.
type side int

const (
	clientSide side = iota
	driverSide
)

func (s side) String() string { return [...]string{"the client", "the driver"}[s] }

func (s side) other() side { return 1 - s }

// streams are the open streams of one connection: the calls that were forwarded and have not
// ended yet. Its methods are safe for concurrent use.
type streams struct {
	mu   sync.Mutex
	open map[uint32]stream // by stream ID; guarded by mu
	last uint32            // highest ID that the client has used; guarded by mu
}

// stream is the state of one call. Both arrays are indexed by the side that sends.
type stream struct {
	left  [2]int32 // bytes that the side may still send
	ended [2]bool  // the side sends no more
}

// claim takes a stream ID of a new call. It fails if the client has used this ID, or a higher
// one, before: trailers of a client do not exist in gRPC.
func (s *streams) claim(id uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id <= s.last || id%2 == 0 {
		return fmt.Errorf("headers for stream %d after stream %d", id, s.last)
	}
	s.last = id
	return nil
}

// begin adds a call with a limit of its answer. It reports false if too many calls are open.
func (s *streams) begin(id uint32, answer int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= maxStreams {
		return false
	}
	s.open[id] = stream{left: [2]int32{clientSide: maxRequest + messageHeader, driverSide: int32(answer) + messageHeader}}
	return true
}

// take counts data of one side. It returns whether the stream is open, and whether the data
// is beyond the limit.
func (s *streams) take(from side, id uint32, length uint32) (open, beyond bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, open := s.open[id]
	if !open {
		return false, false
	}
	st.left[from] -= int32(length)
	s.open[id] = st
	return true, st.left[from] < 0
}

// end notes that one side sends no more on a stream. The stream is closed when both have ended.
func (s *streams) end(from side, id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, open := s.open[id]
	if !open {
		return
	}
	if st.ended[from] = true; st.ended[clientSide] && st.ended[driverSide] {
		delete(s.open, id)
		return
	}
	s.open[id] = st
}

// reset closes a stream, and reports whether it was open.
func (s *streams) reset(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.open[id]
	delete(s.open, id)
	return open
}

func (s *streams) isOpen(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.open[id]
	return open
}
