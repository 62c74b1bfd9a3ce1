package crash

import (
	"bytes"
	"io"
	"sync"
)

// lag holds the events of one resource back from one process, and knows what has passed.
type lag struct {
	mu     sync.Mutex // guards all below
	passed bytes.Buffer
	open   chan struct{} // closed while events may pass
}

func newLag() *lag { return &lag{open: closed()} }

// begin holds events back until end is called.
func (l *lag) begin() { l.mu.Lock(); defer l.mu.Unlock(); l.open = make(chan struct{}) }
func (l *lag) end()   { l.mu.Lock(); defer l.mu.Unlock(); reopen(l.open) }

// has reports whether an object with that resourceVersion has passed. It looks for field 6 of ObjectMeta in
// protobuf: its tag, its length and the text.
func (l *lag) has(resourceVersion string) bool {
	field := append([]byte{6<<3 | 2, byte(len(resourceVersion))}, resourceVersion...)
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.passed.Bytes(), field)
}

// through returns the body of an answer, which passes through the lag. Only a watch is held back: what an informer
// lists or reads by itself is as the API server has it.
func (l *lag) through(body io.ReadCloser, watch bool) io.ReadCloser {
	return &lagging{ReadCloser: body, lag: l, watch: watch, done: make(chan struct{})}
}

// lagging is an answer that passes through a lag.
type lagging struct {
	io.ReadCloser
	lag   *lag
	watch bool
	once  sync.Once
	done  chan struct{} // closed when the client has left
}

func (b *lagging) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.lag.mu.Lock()
	open := b.lag.open
	b.lag.mu.Unlock()
	if b.watch {
		select {
		case <-open:
		case <-b.done:
			return 0, io.ErrUnexpectedEOF
		}
	}
	b.lag.mu.Lock()
	b.lag.passed.Write(p[:n])
	b.lag.mu.Unlock()
	return n, err
}

// Close implements io.Closer.
func (b *lagging) Close() error {
	b.once.Do(func() { close(b.done) })
	return b.ReadCloser.Close()
}
