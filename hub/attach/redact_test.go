package attach

import (
	"encoding/base64"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// redactValues redacts the error of a call that has the values as secrets.
func redactValues(err error, values []string) error {
	secrets := map[string]string{}
	for i, value := range values {
		secrets[strconv.Itoa(i)] = value
	}
	return Redact(err, secrets)
}

func TestSecretsThatADriverRepeatsAreTakenOutOfItsError(t *testing.T) {
	away := errors.New("away")
	err := errors.Join(away, status.Error(codes.Unauthenticated, "login as admin with hunter22-long failed: hunter22"))
	secrets := []string{"hunter22", "hunter22-long", "admin"}
	got := &CallError{redactValues(err, secrets)}
	if want := "away\nrpc error: code = Unauthenticated desc = login as admin with [secret] failed: [secret]"; got.Error() != want {
		t.Errorf("%q, want %q", got, want)
	}
	if status.Code(got.Err) != codes.Unauthenticated {
		t.Errorf("code %s, want that of the error", status.Code(got.Err))
	}
	if !errors.Is(got, away) {
		t.Error("the error is not what it was")
	}
	if same := redactValues(away, secrets); same != away {
		t.Errorf("%v: an error without a secret is another one", same)
	}
	if _, ok := status.FromError(redactValues(errors.New("dial hunter22"), secrets)); ok {
		t.Error("an error that no driver has answered has become an answer")
	}
}

// awkward has characters that each escaping writes differently.
const awkward = `p<ä>s&s "w/o"+r%d'\~x`

func TestEncodedSecretsAreTakenOutOfErrors(t *testing.T) {
	for form, text := range map[string]string{
		"literal":         awkward,
		"base64":          base64.StdEncoding.EncodeToString([]byte(awkward)),
		"base64 unpadded": base64.RawStdEncoding.EncodeToString([]byte(awkward)),
		"base64 of a URL": base64.URLEncoding.EncodeToString([]byte(awkward)),
		"query":           url.QueryEscape(awkward),
		"path":            url.PathEscape(awkward),
	} {
		if got := redactValues(errors.New("before "+text+" after"), []string{awkward}).Error(); !onlyMarked(got, "[secret]", "before ", " after", "=") {
			t.Errorf("%s: %q", form, got)
		}
	}
}

// onlyMarked reports whether a text has the mark, and besides only the given parts.
func onlyMarked(text, mark string, parts ...string) bool {
	rest := strings.ReplaceAll(text, mark, "")
	for _, part := range parts {
		rest = strings.ReplaceAll(rest, part, "")
	}
	return rest == "" && strings.Contains(text, mark)
}

func TestValuesAreTakenOutOfErrorsWhateverIsInThem(t *testing.T) {
	for name, c := range map[string]struct{ secret, text string }{
		"the file without the newline":      {"  hunter22\n", "hunter22"},
		"a value of spaces and few letters": {"\t    abc", "\t    abc"},
		"a value with control characters":   {"pass\x01word", "pass\x01word"},
		"control characters, in a query":    {"pass\x01word", url.QueryEscape("pass\x01word")},
		"text that becomes the secret":      {"pass?word", "pass\x02word"},
		"a secret of several lines":         {"-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----\n", "-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----"},
		"a secret of six bytes":             {"hunter", "hunter"},
		"the same secret twice":             {"hunter22", "hunter22hunter22"},
	} {
		if got := redactValues(errors.New("<"+c.text+">"), []string{c.secret}).Error(); !onlyMarked(got, "[secret]", "<", ">") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Usual short words stay.
	if got := redactValues(errors.New("user short failed"), []string{"short", ""}).Error(); got != "user short failed" {
		t.Errorf("%q", got)
	}
}

func TestRedactorKnowsTheSecretsOfCallsInFlightAndOfPublications(t *testing.T) {
	published := []map[string]string{{"password": "published"}}
	r := Redactor{Publications: func() []map[string]string { return published }}
	hides := func(text string) bool {
		return r.Text(text, 100) == "[secret]" && r.Error(errors.New(text)).Error() == "[secret]"
	}
	one, other := map[string]string{"password": "hunter22"}, map[string]string{"password": "hunter22"}
	r.calls.Store(&one, nil)
	r.calls.Store(&other, nil)
	if !hides("hunter22") || !hides("published") || hides("another") {
		t.Error("a secret of a call in flight or of a publication is shown")
	}
	r.calls.Delete(&one)
	if !hides("hunter22") {
		t.Error("the secret of a call in flight is shown when another call has ended")
	}
	r.calls.Delete(&other)
	published = nil
	if hides("hunter22") || hides("published") {
		t.Error("the secrets of calls and publications that have ended are still looked for")
	}
	if r.Error(nil) != nil {
		t.Error("no error became one")
	}
}

func TestASecretAtTheEndOfATruncatedErrorShowsNoHead(t *testing.T) {
	secret := "hunter22-" + strings.Repeat("0123456789", 30)
	for before := csiclient.MaxText - 400; before < csiclient.MaxText+10; before++ {
		got := redactValues(errors.New(strings.Repeat("x", before)+secret+strings.Repeat("y", 1<<10)), []string{secret}).Error()
		if strings.Contains(got, "h") || len(got) > csiclient.MaxText {
			t.Fatalf("after %d bytes: %q", before, got[len(got)-40:])
		}
	}
}
