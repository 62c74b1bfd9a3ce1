package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRedactorKnowsTheLatestValuesWithinItsBounds(t *testing.T) {
	var r Redactor
	hides := func(text string) bool { return !strings.Contains(r.Error(errors.New("<"+text+">")).Error(), text) }
	long := strings.Repeat("l", recentBytes+1)
	for i := range recentSecrets + 1 {
		r.Use(map[string]string{"password": fmt.Sprintf("password-%03d", i), "long": long})()
	}
	if hides("password-000") || !hides("password-001") || !hides(fmt.Sprintf("password-%03d", recentSecrets)) || len(r.recent) != recentSecrets {
		t.Errorf("%d values are known", len(r.recent))
	}
	r.Use(map[string]string{"certificate": long[:recentBytes]})()
	if len(r.recent) != 1 || r.Text("password-064", 100) != "password-064" {
		t.Errorf("%d values are known beside one of the most bytes", len(r.recent))
	}
	if r.Error(nil) != nil {
		t.Error("no error became one")
	}
}

func TestRedactorKnowsTheValuesOfAllCallsInFlight(t *testing.T) {
	var r Redactor
	hides := func(text string) bool { return r.Text(text, 2*recentBytes) == "[secret]" }
	long := strings.Repeat("l", recentBytes+1)
	ends := []func(){r.Use(map[string]string{"long": long})}
	for i := range 2 * recentSecrets {
		ends = append(ends, r.Use(map[string]string{"password": fmt.Sprintf("password-%03d", i)}))
	}
	if !hides("password-000") || !hides(long) || !hides("password-127") {
		t.Errorf("only %d values of the calls in flight are known", len(r.recent))
	}
	for _, end := range ends {
		end()
	}
	if hides("password-063") || hides(long) || !hides("password-064") || len(r.recent) != recentSecrets {
		t.Errorf("%d values are known after the calls", len(r.recent))
	}
}

func TestRedactorComputesTheFormsOfAValueOnce(t *testing.T) {
	var r Redactor
	secrets := map[string]string{"password": "correct horse"}
	r.Use(secrets)()
	before := &r.hidden()[0].forms[0]
	r.Use(map[string]string{"password": "another one"})()
	defer r.Use(secrets)() // the latest, and after other ones
	if after := &r.hidden()[1].forms[0]; after != before {
		t.Error("the forms of a value that is used again were computed again")
	}
}

// SECURITY.md says that the values of a driver and their forms take at most 4 MiB after their calls.
func TestRedactorKeepsBoundedForms(t *testing.T) {
	for name, line := range map[string]string{"lines": "key%07d\n", "fields": "k=%08d\n", "long lines": "%060d\n", "JSON": "\"%08d\",\n"} {
		for _, values := range []int{1, recentSecrets} {
			var r Redactor
			for i := range values {
				var value strings.Builder
				for n := range recentBytes / values / len(fmt.Sprintf(line, 0)) {
					fmt.Fprintf(&value, line, i*recentBytes+n)
				}
				text := value.String()
				if name == "JSON" {
					text = "[" + strings.TrimRight(text, ",\n") + "]"
				}
				r.Use(map[string]string{"file": text[:min(len(text), recentBytes/values)]})()
			}
			size := 0
			for _, set := range r.hidden() {
				for _, form := range set.forms {
					size += len(form) + formOverhead
				}
			}
			if len(r.recent) != values || size > 4<<20 {
				t.Errorf("%d values of %s: the forms of %d take %d bytes", values, name, len(r.recent), size)
			}
		}
	}
}

// Each volume of a driver has a Secret of its own with a file of credentials, and many volumes fail.
func BenchmarkRedactorWithManyValues(b *testing.B) {
	var r Redactor
	for i := range 28 {
		var file strings.Builder
		for n := range 30 {
			fmt.Fprintf(&file, "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB%026d\n", i*100+n*7919)
		}
		r.Use(map[string]string{"credentials": file.String()})()
	}
	err := errors.New(strings.Repeat("request 0123456789 failed; ", 150))
	b.ReportAllocs()
	for b.Loop() {
		_ = r.Error(err).Error()
	}
}
