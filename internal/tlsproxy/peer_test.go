package tlsproxy

import (
	"bytes"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer is one end of a relay, a client or a driver, that sends frames as the test says.
type peer struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	block  bytes.Buffer
	fields *hpack.Encoder // writes to block
}

// newPeers returns a client and a driver with a relay between them, which have exchanged
// SETTINGS, and the reasons for the end of the relay.
func newPeers(t *testing.T) (c, d *peer, ended <-chan string) {
	t.Helper()
	client, driver := pipe(t), pipe(t)
	r := newRelay(client[1], driver[0], func(string, string) {})
	reasons := make(chan string, 2)
	for _, from := range []side{clientSide, driverSide} {
		go func() {
			reasons <- r.pump(from).Error()
			client[1].Close()
			driver[0].Close()
		}()
	}
	c, d = newPeer(t, client[0]), newPeer(t, driver[1])
	c.send([]byte(http2.ClientPreface))
	c.do(c.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}))
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := d.conn.Read(preface); err != nil || string(preface) != http2.ClientPreface {
		t.Fatalf("got %q, %v", preface, err)
	}
	if got := next[*http2.SettingsFrame](d); got.NumSettings() != 0 {
		t.Errorf("the driver got %v", got)
	}
	d.do(d.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0},
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1 << 20}))
	next[*http2.SettingsFrame](c)
	return c, d, reasons
}

// pipe returns the two ends of a connection with a buffer.
func pipe(t *testing.T) (ends [2]net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if ends[0], err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if ends[1], err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, end := range ends {
		t.Cleanup(func() { end.Close() })
	}
	return ends
}

func newPeer(t *testing.T, conn net.Conn) *peer {
	p := &peer{t: t, conn: conn, framer: http2.NewFramer(conn, conn)}
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	p.framer.AllowIllegalWrites = true
	p.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.fields = hpack.NewEncoder(&p.block)
	return p
}

func (p *peer) do(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	_, err := p.conn.Write(b)
	p.do(err)
}

// encode returns a block of headers from names and values.
func (p *peer) encode(fields ...string) []byte {
	p.t.Helper()
	p.block.Reset()
	for f := range slices.Chunk(fields, 2) {
		p.do(p.fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return slices.Clone(p.block.Bytes())
}

func (p *peer) headers(id uint32, block []byte) {
	p.t.Helper()
	p.do(p.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}))
}

// call sends the headers of a call.
func (p *peer) call(id uint32, method string, more ...string) {
	p.t.Helper()
	p.headers(id, p.encode(append([]string{":method", "POST", ":scheme", "https", ":path", method, ":authority", "x"}, more...)...))
}

// next reads the next frame, which must be of a type.
func next[T http2.Frame](p *peer) T {
	p.t.Helper()
	f, err := p.framer.ReadFrame()
	if err != nil {
		p.t.Fatal(err)
	}
	typed, ok := f.(T)
	if !ok {
		p.t.Fatalf("got frame %v", f)
	}
	return typed
}

// ping passes a PING, so that the test knows that nothing else came before it.
func ping(from, to *peer) {
	from.t.Helper()
	from.do(from.framer.WritePing(false, [8]byte{1}))
	next[*http2.PingFrame](to)
}
