package attach

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// redactValues redacts the error of a call that has the values as secrets.
func redactValues(err error, values []string) error {
	var r Redactor
	secrets := map[string]string{}
	for i, value := range values {
		secrets[strconv.Itoa(i)] = value
	}
	defer r.Use(secrets)()
	return r.Error(err)
}

func TestSecretsThatADriverRepeatsAreTakenOutOfItsError(t *testing.T) {
	away := errors.New("away")
	err := errors.Join(away, status.Error(codes.Unauthenticated, "login as admin with hunter22-long failed: hunter22"))
	secrets := []string{"hunter22", "hunter22-long", "admin"}
	got := &CallError{Method: "m", Err: redactValues(err, secrets)}
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
	inJSON, _ := json.Marshal(awkward)
	for form, text := range map[string]string{
		"literal":           awkward,
		"base64":            base64.StdEncoding.EncodeToString([]byte(awkward)),
		"base64 unpadded":   base64.RawStdEncoding.EncodeToString([]byte(awkward)),
		"base64 of a URL":   base64.URLEncoding.EncodeToString([]byte(awkward)),
		"query":             url.QueryEscape(awkward),
		"query, lower case": lowerEscapes(url.QueryEscape(awkward)),
		"query with spaces": strings.ReplaceAll(url.QueryEscape(awkward), "+", "%20"),
		"path":              url.PathEscape(awkward),
		"path, lower case":  lowerEscapes(url.PathEscape(awkward)),
		"user of a URL":     (&url.URL{Scheme: "https", User: url.UserPassword("me", awkward), Host: "h"}).String(),
		"JSON":              string(inJSON),
		"JSON without HTML": jsonEscaped(awkward, false),
		"HTML":              html.EscapeString(awkward),
		"HTML of others":    strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#x27;").Replace(awkward),
		"hex":               fmt.Sprintf("%x", awkward),
		"hex, upper case":   fmt.Sprintf("%X", awkward),
		"%q":                fmt.Sprintf("%q", awkward),
		"%+q":               strconv.QuoteToASCII(awkward),
	} {
		if got := redactValues(errors.New("before "+text+" after"), []string{awkward}).Error(); !onlyMarked(got, "[secret]", "before ", " after", `"`, "=", "https://me:", "@h") {
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

func TestSecretsWithinALongerBase64TextAreTakenOutOfErrors(t *testing.T) {
	for _, secret := range []string{"hunter22", "hunter222", "hunter2222", "\xff\xfe?>~~~\x01"} {
		for before := range 6 {
			for after := range 6 {
				whole := strings.Repeat("u", before) + secret + strings.Repeat("v", after)
				for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
					text := encoding.EncodeToString([]byte(whole))
					got := redactValues(errors.New("Basic "+text+" is wrong"), []string{secret}).Error()
					left := strings.TrimSuffix(strings.TrimPrefix(got, "Basic "), " is wrong")
					// What is left depends on the neighbours, and on at most a byte of the secret at each edge.
					if most := len("[secret]") + (before+2)/3*4 + (after+2)/3*4 + 4; !strings.Contains(left, "[secret]") || len(left) > most {
						t.Errorf("%q in %s (%d bytes before, %d after): %q", secret, text, before, after, left)
					}
				}
			}
		}
	}
}

func TestLinesAndFieldsOfASecretAreTakenOutOfErrors(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"
	file, _ := json.Marshal(map[string]any{"type": "account", "private_key": key, "nested": []any{map[string]string{"token": "tok\"en-in-list"}}})
	ini := "[default]\naws_access_key_id = AKIAEXAMPLE\r\naws_secret_access_key=\"wJalrXUtnFEMI\"\nuser: short\nauth: dXNlcg==tail\n"
	for name, c := range map[string]struct{ secret, text string }{
		"a line of a key":                    {key, "MIIEvQIBADANBgkqhkiG9w0B"},
		"a line of a key in base64":          {key, base64.StdEncoding.EncodeToString([]byte("AQEFAASCBKcwggSjAgEAAoIB"))},
		"the key of a JSON file":             {string(file), key},
		"the key of a JSON file, as it is":   {string(file), jsonEscaped(key, true)},
		"a line of the key of a JSON file":   {string(file), "AQEFAASCBKcwggSjAgEAAoIB"},
		"a nested string of a JSON file":     {string(file), "tok\"en-in-list"},
		"the value of an INI file":           {ini, "AKIAEXAMPLE"},
		"the quoted value of an INI file":    {ini, "wJalrXUtnFEMI"},
		"the value of a YAML file":           {ini, "dXNlcg==tail"},
		"a line of an INI file, in hex":      {ini, hex.EncodeToString([]byte("aws_access_key_id = AKIAEXAMPLE"))},
		"the text that the secret encodes":   {base64.StdEncoding.EncodeToString([]byte("correct horse")) + "\n", "correct horse"},
		"a line that the secret encodes":     {base64.StdEncoding.EncodeToString([]byte(key)), "MIIEvQIBADANBgkqhkiG9w0B"},
		"the password of user:password":      {"admin:correct horse", "correct horse"},
		"the file without the newline":       {"  hunter22\n", "hunter22"},
		"a value of spaces and few letters":  {"\t    abc", "\t    abc"},
		"a value with control characters":    {"pass\x01word", "pass\x01word"},
		"control characters, in a query":     {"pass\x01word", url.QueryEscape("pass\x01word")},
		"text that becomes the secret":       {"pass?word", "pass\x02word"},
		"two secrets that share characters":  {"hunter22-\nr22-long", "hunter22-long"},
		"a secret that begins with a secret": {"hunter\nhunter22", "hunter22"},
	} {
		if got := redactValues(errors.New("<"+c.text+">"), []string{c.secret}).Error(); !onlyMarked(got, "[secret]", "<", ">", "\n", `\n`, "=") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Usual short words stay.
	if got := redactValues(errors.New("user short of [d] failed"), []string{ini, string(file)}).Error(); got != "user short of [d] failed" {
		t.Errorf("%q", got)
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

// A Secret and an error of the largest sizes must not take the memory or the processor from the other drivers.
func TestHugeSecretsAndErrorsHaveBoundedForms(t *testing.T) {
	var lines strings.Builder
	for i := 0; lines.Len() < 1<<20; i++ {
		fmt.Fprintf(&lines, "key%05d\n", i)
	}
	for name, value := range map[string]string{"many lines": lines.String(), "many lines of the most that is kept": lines.String()[:recentBytes], "a long line": strings.Repeat("0123456789", 1<<16)} {
		asTheyAre, encoded := 0, 0
		parts := sets.New(partsOf(value)...)
		for _, form := range newFormSet(hiddenForms(value)).forms {
			if encoded += len(form) + formOverhead; parts.Has(form) {
				asTheyAre += len(form) + formOverhead
			}
		}
		if encoded -= asTheyAre; encoded > encodedLeast+encodedTimes*recentBytes {
			t.Errorf("%s: encoded forms take %d bytes", name, encoded)
		}
	}
	if got := redactValues(errors.New("no key99999, key00000 or "+"key"+"54321"), []string{lines.String()}).Error(); strings.Contains(got, "key0") || strings.Contains(got, "key5") {
		t.Error(got)
	}
}

func BenchmarkRedact(b *testing.B) {
	var lines strings.Builder
	for i := 0; lines.Len() < 64<<10; i++ {
		fmt.Fprintf(&lines, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB%016d\n", i*7919)
	}
	for name, c := range map[string]struct{ secret, text string }{
		"usual":                      {"correct horse", "login as admin with correct horse failed"},
		"long secret":                {lines.String(), "login as admin failed"},
		"long error":                 {"correct horse", strings.Repeat("MIIEvQIBADAN ", 80<<10)},
		"long secret and error":      {lines.String(), strings.Repeat("MIIEvQIBADAN ", 80<<10)},
		"long secret, many times":    {lines.String(), strings.Repeat(lines.String(), 16)},
		"long secret in long base64": {lines.String(), base64.StdEncoding.EncodeToString([]byte(strings.Repeat(lines.String(), 12)))},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			err := errors.New(c.text)
			for b.Loop() {
				_ = redactValues(err, []string{c.secret}).Error()
			}
		})
	}
}
