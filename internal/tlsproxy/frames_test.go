package tlsproxy

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// passage is what a driver sends, up to a place where a GOAWAY may come, and beyond.
type passage struct {
	name          string
	before, after func(f *http2.Framer) error
}

var passages = []passage{
	{"after the first frame", settings, data},
	{"not before the first frame", settings, settings},
	{"after a frame without a payload", both(settings, settingsAck), data},
	{"after a payload", both(settings, data), data},
	{"not within a block of headers", both(settings, headersInParts), data},
	{"after whole headers", both(settings, headers), data},
}

func settings(f *http2.Framer) error {
	return f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 20})
}
func settingsAck(f *http2.Framer) error { return f.WriteSettingsAck() }
func data(f *http2.Framer) error        { return f.WriteData(1, false, bytes.Repeat([]byte{7}, 300)) }
func headers(f *http2.Framer) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
}

func headersInParts(f *http2.Framer) error {
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}}); err != nil {
		return err
	}
	if err := f.WriteContinuation(1, false, nil); err != nil {
		return err
	}
	return f.WriteContinuation(1, true, []byte{0x88})
}

func both(first, second func(*http2.Framer) error) func(*http2.Framer) error {
	return func(f *http2.Framer) error {
		if err := first(f); err != nil {
			return err
		}
		return second(f)
	}
}

func inBytes(t *testing.T, write func(*http2.Framer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := write(http2.NewFramer(&b, nil)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGoAwayComesBetweenFramesHoweverTheyArrive(t *testing.T) {
	for _, p := range passages {
		t.Run(p.name, func(t *testing.T) {
			before, after := inBytes(t, p.before), inBytes(t, p.after)
			whole := slices.Concat(before, after)
			// Asked right before the last byte of what must come first.
			for size := 1; size <= len(whole); size++ {
				var out bytes.Buffer
				d := &clientWriter{to: &out}
				asked := false
				for at := 0; at < len(whole); at += size {
					if !asked && at+size >= len(before) {
						asked = true
						d.askToGo()
						d.askToGo() // is told once
					}
					if n, err := d.Write(whole[at:min(at+size, len(whole))]); err != nil || n != min(size, len(whole)-at) {
						t.Fatalf("wrote %d, %v", n, err)
					}
				}
				checkOneGoAway(t, whole, out.Bytes())
				if size == 1 && !bytes.Equal(out.Bytes(), slices.Concat(before, goAway, after)) {
					t.Errorf("the GOAWAY is not where it was to be")
				}
				if t.Failed() {
					t.Fatalf("in pieces of %d bytes", size)
				}
			}
		})
	}
}

// checkOneGoAway checks that what arrives is HTTP/2, and what was sent but for one GOAWAY.
func checkOneGoAway(t *testing.T, sent, got []byte) {
	t.Helper()
	if at := bytes.Index(got, goAway); at < 0 || !bytes.Equal(slices.Concat(got[:at], got[at+len(goAway):]), sent) {
		t.Error("there is no GOAWAY, or something else is not as it was sent")
	}
	framer := http2.NewFramer(nil, bytes.NewReader(got))
	for first, told := true, 0; ; first = false {
		frame, err := framer.ReadFrame()
		if err != nil {
			if err.Error() != "EOF" || told != 1 {
				t.Errorf("%d times GOAWAY, then %v", told, err)
			}
			return
		}
		if _, is := frame.(*http2.SettingsFrame); first && !is {
			t.Errorf("the first frame is %v", frame)
		}
		if g, is := frame.(*http2.GoAwayFrame); is {
			told++
			if g.LastStreamID != 1<<31-1 || g.ErrCode != http2.ErrCodeNo {
				t.Errorf("got %v", g)
			}
		}
	}
}

// A client that is told of a higher last stream than before takes that for an error
// and cuts its calls.
func TestNoGoAwayFollowsThatOfTheDriver(t *testing.T) {
	sent := inBytes(t, both(settings, func(f *http2.Framer) error { return f.WriteGoAway(3, http2.ErrCodeNo, nil) }))
	var out bytes.Buffer
	d := &clientWriter{to: &out}
	if _, err := d.Write(sent); err != nil {
		t.Fatal(err)
	}
	d.askToGo()
	if _, err := d.Write(inBytes(t, data)); err != nil {
		t.Fatal(err)
	}
	if got := out.Bytes(); !bytes.Equal(got, slices.Concat(sent, inBytes(t, data))) {
		t.Errorf("got %q", got)
	}
}
