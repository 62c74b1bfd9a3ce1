package http2frames

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

func TestFramesAreFoundInTheBytesHoweverTheseAreCut(t *testing.T) {
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&sent, nil)
	for _, length := range []int{300, 1, 0, 40, 70000} {
		if err := framer.WriteRawFrame(http2.FrameHeaders, 0, 1, make([]byte, length)); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, 2*length)); err != nil {
			t.Fatal(err)
		}
	}
	for _, size := range []int{1, 2, 7, 9, 24, 33, 1000, sent.Len()} {
		s := NewClientScanner()
		begun, ended := 0, 0
		for rest := sent.Bytes(); len(rest) > 0; {
			next := min(size, len(rest))
			begun += s.Count(rest[:next], http2.FrameHeaders)
			if s.AtEnd() {
				ended++
			}
			rest = rest[next:]
		}
		if begun != 5 {
			t.Errorf("%d bytes at a time: %d frames, want 5", size, begun)
		}
		if size == 1 && ended != 10 {
			t.Errorf("%d frames ended, want 10", ended)
		}
	}
}

func TestServerSendsNoPreface(t *testing.T) {
	var sent bytes.Buffer
	if err := http2.NewFramer(&sent, nil).WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var s Scanner
	if n := s.Count(sent.Bytes(), http2.FrameSettings); n != 1 {
		t.Errorf("%d frames of settings, want 1", n)
	}
}
