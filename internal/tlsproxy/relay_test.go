package tlsproxy

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestFramesOfOtherCallsAreDropped(t *testing.T) {
	c, d, _ := newPeers(t)
	c.call(1, "/csi.v1.Controller/DeleteVolume", "k", "v")
	if got := next[*http2.MetaHeadersFrame](c); !got.StreamEnded() || got.PseudoValue("status") != "200" {
		t.Errorf("got %v", got)
	}
	if got := next[*http2.RSTStreamFrame](c); got.ErrCode != http2.ErrCodeNo {
		t.Errorf("got %v", got)
	}
	for _, id := range []uint32{1, 7} { // refused, and never begun
		c.do(c.framer.WriteData(id, true, make([]byte, 1000)))
		if got := next[*http2.WindowUpdateFrame](c); got.StreamID != 0 || got.Increment != 1000 {
			t.Errorf("got %v", got)
		}
		c.do(c.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		c.do(c.framer.WriteWindowUpdate(id, 10))
		c.do(c.framer.WriteRawFrame(http2.FramePriority, 0, id, make([]byte, 5)))
		c.do(c.framer.WriteRawFrame(0xee, 0, id, []byte("unknown")))
	}
	ping(c, d)

	c.call(9, publishMethod, "k", "v")
	if got := next[*http2.MetaHeadersFrame](d); got.StreamID != 9 || got.PseudoValue("path") != publishMethod || got.Fields[4].Value != "v" {
		t.Errorf("got %v", got)
	}
	c.do(c.framer.WriteDataPadded(9, true, []byte("abc"), make([]byte, 5)))
	if got := next[*http2.DataFrame](d); string(got.Data()) != "abc" || got.Length != 9 || !got.StreamEnded() {
		t.Errorf("got %v", got)
	}
	d.headers(9, d.encode(":status", "200"))
	next[*http2.MetaHeadersFrame](c)
	c.do(c.framer.WriteRSTStream(9, http2.ErrCodeCancel))
	next[*http2.RSTStreamFrame](d)
	d.do(d.framer.WriteData(9, false, make([]byte, 500))) // was under way
	if got := next[*http2.WindowUpdateFrame](d); got.StreamID != 0 || got.Increment != 500 {
		t.Errorf("got %v", got)
	}
	d.headers(9, d.encode("grpc-status", "0", "grpc-message", "in the table"))
	next[*http2.MetaHeadersFrame](c)
	ping(d, c)
}

// What two parsers understand differently must not reach the driver.
func TestHeadersInPartsAreJudgedAsAWhole(t *testing.T) {
	c, d, _ := newPeers(t)
	block := c.encode(":method", "POST", ":scheme", "https", ":path", "/csi.v1.Controller/DeleteVolume")
	c.do(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:4]}))
	for i := 4; i < len(block); i++ {
		c.do(c.framer.WriteContinuation(1, i == len(block)-1, block[i:i+1]))
	}
	next[*http2.MetaHeadersFrame](c)
	next[*http2.RSTStreamFrame](c)
	for id, fields := range map[uint32][]string{
		3: {":method", "POST", ":path", publishMethod, ":path", "/csi.v1.Controller/DeleteVolume"},
		5: {":method", "POST", "x", "y", ":path", publishMethod},
		7: {":method", "POST", ":path", publishMethod, "Upper", "y"},
		9: {":method", "POST", ":path", publishMethod, "x", "a\r\nb"},
	} {
		c, d, _ := newPeers(t)
		c.headers(id, c.encode(fields...))
		if got := next[*http2.RSTStreamFrame](c); got.ErrCode != http2.ErrCodeProtocol {
			t.Errorf("%q: got %v", fields, got)
		}
		ping(c, d)
	}
	ping(c, d)
}

// A few bytes can refer to a large field in the table, many times.
func TestHeadersThatExpandBeyondTheLimitAreRefused(t *testing.T) {
	c, d, _ := newPeers(t)
	var large []string
	for range 30 {
		large = append(large, "x", strings.Repeat("y", 3000))
	}
	c.call(1, publishMethod, large...)
	if got := next[*http2.MetaHeadersFrame](c); !got.StreamEnded() || !slices.Contains(got.Fields, hpack.HeaderField{Name: "grpc-status", Value: "8", Sensitive: true}) {
		t.Errorf("got %v", got.Fields)
	}
	next[*http2.RSTStreamFrame](c)
	c.call(3, publishMethod, large[:2]...)
	if got := next[*http2.MetaHeadersFrame](d); got.StreamID != 3 || len(got.Fields) != 5 {
		t.Errorf("got %v", got)
	}
}

func TestConnectionsThatBreakTheProtocolEnd(t *testing.T) {
	for name, test := range map[string]struct {
		send func(c, d *peer)
		want string
	}{
		"a stream again":      {func(c, _ *peer) { c.call(1, publishMethod); c.call(1, publishMethod) }, "the client has broken the HTTP/2 protocol"},
		"a stream below":      {func(c, _ *peer) { c.call(3, "/x"); c.call(1, publishMethod) }, "the client has broken the HTTP/2 protocol"},
		"a stream of servers": {func(c, _ *peer) { c.call(2, publishMethod) }, "the client has broken the HTTP/2 protocol"},
		"a broken table":      {func(c, _ *peer) { c.headers(1, []byte{0xff, 0xff, 0xff, 0xff, 0xff}) }, "the client has broken the HTTP/2 protocol"},
		"endless headers": {func(c, _ *peer) {
			c.do(c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.encode(":path", "/x")}))
			for range 100 {
				if c.framer.WriteContinuation(1, false, c.encode("x", strings.Repeat("~", 10_000))) != nil {
					return
				}
			}
		}, "the client has broken the HTTP/2 protocol"},
		"continuation alone": {func(c, _ *peer) { c.do(c.framer.WriteContinuation(1, true, nil)) }, "unexpected frame CONTINUATION"},
		"other frame within headers": {func(_, d *peer) {
			d.do(d.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1}))
			d.do(d.framer.WriteData(1, true, nil))
		}, "the driver has broken the HTTP/2 protocol: frame DATA within headers"},
		"push":          {func(_, d *peer) { d.do(d.framer.WriteRawFrame(http2.FramePushPromise, 4, 1, make([]byte, 4))) }, "unexpected frame PUSH_PROMISE"},
		"a large frame": {func(_, d *peer) { d.send([]byte{0x00, 0x40, 0x01, 0, 0, 0, 0, 0, 1}) }, "the driver has sent a frame of 16385 bytes"},
		"client's end":  {func(c, _ *peer) { c.conn.Close() }, "the client has ended the connection"},
		"driver's end":  {func(_, d *peer) { d.conn.Close() }, "the driver has ended the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			c, d, ended := newPeers(t)
			test.send(c, d)
			select {
			case why := <-ended:
				if !strings.Contains(why, test.want) {
					t.Errorf("ended because %s, want %s", why, test.want)
				}
			case <-time.After(30 * time.Second):
				t.Errorf("goes on, want %s", test.want)
			}
		})
	}
}

func TestTooManyCallsOfOneClientAreRefused(t *testing.T) {
	c, d, _ := newPeers(t)
	go func() {
		for {
			if _, err := d.framer.ReadFrame(); err != nil {
				return
			}
		}
	}()
	for i := range uint32(maxStreams + 1) {
		c.call(2*i+1, publishMethod)
	}
	if got := next[*http2.RSTStreamFrame](c); got.ErrCode != http2.ErrCodeRefusedStream || got.StreamID != 2*maxStreams+1 {
		t.Errorf("got %v", got)
	}
	c.do(c.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	c.call(2*maxStreams+3, "/x")
	next[*http2.MetaHeadersFrame](c)
}

func TestClientIsToldTheLimitsOfTheProxy(t *testing.T) {
	first := settingsFrame(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 7}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 5},
		http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20}, http2.Setting{ID: 0xfe03, Val: 1})
	want := []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 7}, {ID: http2.SettingMaxConcurrentStreams, Val: 5}, {ID: http2.SettingMaxHeaderListSize, Val: maxHeaders}}
	if got := keepSettings(clientSide, first, true); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Later settings are changes: what they do not name stays.
	if got := keepSettings(clientSide, settingsFrame(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 8}), false); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

func settingsFrame(t *testing.T, all ...http2.Setting) *http2.SettingsFrame {
	t.Helper()
	var b bytes.Buffer
	framer := http2.NewFramer(&b, &b)
	if err := framer.WriteSettings(all...); err != nil {
		t.Fatal(err)
	}
	f, err := framer.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	return f.(*http2.SettingsFrame)
}

// A client that is told of a higher last stream than before takes that for an error and cuts
// its calls.
func TestNoGoAwayFollowsThatOfTheDriver(t *testing.T) {
	client, driver := pipe(t), pipe(t)
	r := newRelay(client[1], driver[0], func(string, string) {})
	go func() { _ = r.pump(driverSide) }()
	c, d := newPeer(t, client[0]), newPeer(t, driver[1])
	d.do(d.framer.WriteSettings())
	d.do(d.framer.WriteGoAway(3, http2.ErrCodeNo, nil))
	next[*http2.SettingsFrame](c)
	if got := next[*http2.GoAwayFrame](c); got.LastStreamID != 3 {
		t.Errorf("got %v", got)
	}
	r.writers[clientSide].askToGo()
	ping(d, c)
}

func TestGoAwayComesOnceAndBetweenFrames(t *testing.T) {
	client, driver := pipe(t), pipe(t)
	r := newRelay(client[1], driver[0], func(string, string) {})
	r.writers[clientSide].askToGo() // before the first frame, which must be SETTINGS
	go func() { _ = r.pump(driverSide) }()
	c, d := newPeer(t, client[0]), newPeer(t, driver[1])
	d.do(d.framer.WriteSettings())
	next[*http2.SettingsFrame](c)
	if got := next[*http2.GoAwayFrame](c); got.LastStreamID != 1<<31-1 || got.ErrCode != http2.ErrCodeNo {
		t.Errorf("got %v", got)
	}
	r.writers[clientSide].askToGo()
	ping(d, c)

	client, driver = pipe(t), pipe(t)
	r = newRelay(client[1], driver[0], func(string, string) {})
	go func() { _ = r.pump(driverSide) }()
	c, d = newPeer(t, client[0]), newPeer(t, driver[1])
	d.do(d.framer.WriteSettings())
	next[*http2.SettingsFrame](c)
	block := d.encode(":status", "200", "k", strings.Repeat("v", 100))
	begin := time.Now()
	d.do(d.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:10]}))
	for r.writers[clientSide].mu.TryLock() { // until the relay is within the block
		r.writers[clientSide].mu.Unlock()
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the relay does not keep out other frames within the block")
		}
		runtime.Gosched()
	}
	asked := make(chan struct{})
	go func() { defer close(asked); r.writers[clientSide].askToGo() }()
	d.do(d.framer.WriteContinuation(1, true, block[10:]))
	seen := map[http2.FrameType]int{}
	for range 2 {
		f, err := c.framer.ReadFrame() // fails if a GOAWAY comes within the block
		c.do(err)
		seen[f.Header().Type]++
	}
	<-asked
	if seen[http2.FrameHeaders] != 1 || seen[http2.FrameGoAway] != 1 {
		t.Errorf("got %v", seen)
	}
}
