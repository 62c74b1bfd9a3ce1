package csiclient

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// Whatever a driver says can be stored, logged and shown, and what could be shown before
// is not changed.
func FuzzWords(f *testing.F) {
	f.Add("plain\n\ttext", 20)
	f.Add("\x00\x1b[31m\r\x7f\u0085", 6)
	f.Add("ü\xff\xfe\xc3", 7)
	f.Add(strings.Repeat("ü", 100), 33)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		plain := Sanitize(text)
		if !utf8.ValidString(plain) || strings.ContainsFunc(plain, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }) {
			t.Errorf("%q became %q", text, plain)
		}
		if Sanitize(plain) != plain {
			t.Errorf("%q is another text the second time", plain)
		}
		limit = 6 + (limit&0xffff+0x10000)&0xffff
		short := Truncate(plain, limit)
		if len(short) > limit || !utf8.ValidString(short) || Truncate(short, limit) != short {
			t.Errorf("%q cut to %d bytes is %q", plain, limit, short)
		}
		if len(plain) <= limit && short != plain {
			t.Errorf("%q was cut to %q, there are %d bytes", plain, short, limit)
		}
		if len(Truncate(text, limit)) > limit { // also what is no UTF-8
			t.Errorf("%q is too long when cut to %d bytes", text, limit)
		}
		const code = codes.Code(77)
		got := sanitizeError(status.Error(code, text))
		if status.Code(got) != code || !utf8.ValidString(got.Error()) {
			t.Errorf("%q was said with %v", text, got)
		}
	})
}

// A driver's words are in the state, on the page and in the log of each try to connect.
func TestWhatADriverSaysOfItselfHasNoControlCharacters(t *testing.T) {
	hostile := "\x1b[2J\x00\r\u009b" + strings.Repeat("ü", 16<<10)
	ctx := testContext(t)
	d := startDriver(t, fakecsi.Knobs{Name: hostile})
	_, err := Connect(ctx, at(d.endpoint), nil)
	if _, ok := err.(*NameError); !ok || strings.ContainsAny(err.Error(), "\x00\x1b\r\u009b") {
		t.Errorf("the name: got %.300q of %d bytes", err, len(err.Error()))
	}
	for _, method := range []fakecsi.Method{fakecsi.Probe, fakecsi.GetPluginInfo, fakecsi.GetPluginCapabilities, fakecsi.ControllerGetCapabilities} {
		d.setKnobs(t, fakecsi.Knobs{Name: driverName, ClearFaults: true, Fail: []fakecsi.Fault{{Method: method, Code: codes.Internal, Message: hostile}}})
		_, err := Connect(ctx, at(d.endpoint), nil)
		if status.Code(err) != codes.Internal || strings.ContainsAny(err.Error(), "\x00\x1b\r\u009b") {
			t.Errorf("%s: got %.300q of %d bytes", method, err, len(err.Error()))
		}
	}
	d.setKnobs(t, fakecsi.Knobs{ClearFaults: true})
	s := connect(ctx, t, d.endpoint)
	d.setKnobs(t, fakecsi.Knobs{Fail: []fakecsi.Fault{{Code: codes.Internal, Message: hostile}}})
	_, _, listed := s.ListVolumes(ctx, 0)
	for what, err := range map[string]error{"probe": s.Probe(ctx), "listing": listed} {
		if status.Code(err) != codes.Internal || strings.ContainsAny(err.Error(), "\x00\x1b\r\u009b") {
			t.Errorf("%s: got %.300q of %d bytes", what, err, len(err.Error()))
		}
	}
}
