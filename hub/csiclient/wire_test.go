package csiclient

import (
	"io"
	"net"
	"testing"
)

func TestWireTellsOnceThatNoFurtherCallCanBeMade(t *testing.T) {
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}
	ping := append([]byte{0, 0, 8, 6, 0, 0, 0, 0, 0}, "12345678"...)
	goAway := []byte{0, 0, 8, typeGoAway, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}
	for name, test := range map[string]struct {
		sent  []byte
		close bool // by the other side
		want  int
	}{
		"nothing has happened":         {sent: append(settings, ping...), want: 0},
		"the other side has hung up":   {sent: settings, close: true, want: 1},
		"the other side asks to go":    {sent: append(append(settings, ping...), goAway...), want: 1},
		"it asks, twice, and hangs up": {sent: append(append(settings, goAway...), goAway...), close: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer here.Close()
			defer there.Close()
			w := newWire(here)
			told := 0
			w.onEnd(func() { told++ })
			go func() {
				for _, b := range test.sent { // as badly cut as can be
					_, _ = there.Write([]byte{b})
				}
				if test.close {
					there.Close()
				}
			}()
			if _, err := io.ReadFull(w, make([]byte, len(test.sent))); err != nil {
				t.Fatal(err)
			}
			if test.close {
				if _, err := w.Read(make([]byte, 1)); err != io.EOF {
					t.Fatalf("got %v, want EOF", err)
				}
			}
			if told != test.want {
				t.Errorf("told %d times, want %d", told, test.want)
			}
			w.Close()
			if told != 1 {
				t.Errorf("told %d times after Close, want once", told)
			}
			w.onEnd(func() { told++ })
			if told != 2 {
				t.Error("who asks after the end is not told")
			}
		})
	}
}
