package registry

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const changed = `# who to ask: storage team
apiVersion: attach-hub/v1alpha1
kind: DriverConfig

defaults: {workers: 10}   # for all

drivers:
  # the big array
  - name: a.example.com # production
    endpoint: unix:///csi/a.sock

    # until Monday
    mode: paused   # ask Eve
    retry:
      # short
      initial: 1s
      max: 10s

  - mode: paused
    name: b.example.com
    endpoint: "unix:///csi/b.sock"
    timeout: 5

  - {name: c.example.com, endpoint: 'tcp://c.storage.svc:9443', insecure: true}   # by TCP
# the end
`

func changesOf(t *testing.T, texts ...string) []Change {
	t.Helper()
	var all []Change
	for _, text := range texts {
		c, err := ParseChange(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// differences returns the lines that went with "-", and those that came with "+".
func differences(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out []string
	for _, line := range a {
		out = append(out, "-"+line)
	}
	for _, line := range b {
		out = append(out, "+"+line)
	}
	return strings.Join(out, "\n")
}

func TestAChangeTouchesOnlyItsLines(t *testing.T) {
	sound := strings.ReplaceAll(changed, "timeout: 5\n", "timeout: 5s\n")
	for _, tt := range []struct {
		name, driver string
		changes      []string
		file, want   string // file is sound if empty
	}{
		{"value with a comment", "a.example.com", []string{"mode=active"}, "", "-    mode: paused   # ask Eve\n+    mode: active   # ask Eve"},
		{"nested value", "a.example.com", []string{"retry.max=30s"}, "", "-      max: 10s\n+      max: 30s"},
		{"nested key is new", "a.example.com", []string{"drift.action=report"}, "", "+    drift:\n+      action: report"},
		{"key is new in a group", "a.example.com", []string{"lease.namespace=storage"}, "", "+    lease:\n+      namespace: storage"},
		{"key is removed", "a.example.com", []string{"mode-"}, "", "-    mode: paused   # ask Eve"},
		{"key is removed from a group", "a.example.com", []string{"retry.initial-"}, "", "-      initial: 1s"},
		{"group is removed", "a.example.com", []string{"retry-"}, "", "-    retry:\n-      # short\n-      initial: 1s\n-      max: 10s"},
		{"last key of a group is removed", "a.example.com", []string{"retry.initial-", "retry.max-"}, "", "-    retry:\n-      # short\n-      initial: 1s\n-      max: 10s"},
		{"first key is removed", "b.example.com", []string{"mode-"}, "", "-  - mode: paused\n-    name: b.example.com\n+  - name: b.example.com"},
		{"first key", "b.example.com", []string{"mode=observe"}, "", "-  - mode: paused\n+  - mode: observe"},
		{"key is new", "b.example.com", []string{"workers=4"}, "", "+    workers: 4"},
		{"several", "b.example.com", []string{"mode=active", "timeout-"}, "", "-  - mode: paused\n-    name: b.example.com\n-    endpoint: \"unix:///csi/b.sock\"\n-    timeout: 5s\n" +
			"+  - mode: active\n+    name: b.example.com\n+    endpoint: \"unix:///csi/b.sock\""},
		{"entry in braces", "c.example.com", []string{"insecure=true", "retry.max=20s"}, "",
			"-  - {name: c.example.com, endpoint: 'tcp://c.storage.svc:9443', insecure: true}   # by TCP\n+  - {name: c.example.com, endpoint: 'tcp://c.storage.svc:9443', insecure: true, retry: {max: 20s}}   # by TCP"},
		{"new entry", "d.example.com", []string{"endpoint=unix:///csi/d.sock", "mode=observe"}, "", "+  - name: d.example.com\n+    endpoint: unix:///csi/d.sock\n+    mode: observe"},
		{"first entry", "d.example.com", []string{"endpoint=unix:///csi/d.sock"}, "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers: [] # none yet\n",
			"-drivers: [] # none yet\n+drivers: # none yet\n+  - name: d.example.com\n+    endpoint: unix:///csi/d.sock"},
		{"text that YAML would read as a number", "a.example.com", []string{"lease.name=123"}, "", "+    lease:\n+      name: \"123\""},
		{"text that YAML would read as something else", "a.example.com", []string{"endpoint=unix:///csi/a #b.sock"}, "", "-    endpoint: unix:///csi/a.sock\n+    endpoint: \"unix:///csi/a #b.sock\""},
		{"no change", "a.example.com", []string{"mode=paused", "timeout-"}, "", ""},
		{"bad value", "b.example.com", []string{"timeout=5s"}, changed, "-    timeout: 5\n+    timeout: 5s"},
		{"unknown key", "b.example.com", []string{"timeouts-"}, strings.ReplaceAll(sound, "timeout: 5s", "timeouts: 5s"), "-    timeouts: 5s"},
		{"key without a value", "b.example.com", []string{"timeout=5s"}, strings.ReplaceAll(sound, "timeout: 5s", "timeout: # later"), "-    timeout: # later\n+    timeout: 5s # later"},
		{"list in place of a value", "b.example.com", []string{"timeout=5s"}, strings.ReplaceAll(sound, "timeout: 5s", "timeout:\n      - 5s\n      - 6s"), "-    timeout:\n-      - 5s\n-      - 6s\n+    timeout: 5s"},
		{"key that is there twice", "b.example.com", []string{"timeout=7s"}, strings.ReplaceAll(sound, "timeout: 5s", "timeout: 5s\n    timeout: 6s"), "-    timeout: 5s\n-    timeout: 6s\n+    timeout: 7s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := tt.file
			if file == "" {
				file = sound
			}
			after, left, err := ChangeDriver("drivers.yaml", []byte(file), tt.driver, changesOf(t, tt.changes...))
			if err != nil || len(left) > 0 {
				t.Fatal(err, left)
			}
			if diff := cmp.Diff(tt.want, differences(file, string(after))); diff != "" {
				t.Errorf("-want +got:\n%s\nthe file:\n%s", diff, after)
			}
		})
	}
}

func TestAChangeThatValidateWouldRefuseIsRefused(t *testing.T) {
	sound := strings.ReplaceAll(changed, "timeout: 5\n", "timeout: 5s\n")
	for name, tt := range map[string]struct {
		file, driver string
		changes      []string
		want         string
	}{
		"bad value":                  {sound, "a.example.com", []string{"mode=activ"}, "drivers.yaml:13: drivers[0].mode"},
		"unknown key":                {sound, "a.example.com", []string{"worker=3"}, "did you mean workers"},
		"required key":               {sound, "a.example.com", []string{"endpoint-"}, "drivers[0].endpoint: missing"},
		"entry without an endpoint":  {sound, "d.example.com", []string{"mode=active"}, "drivers[3].endpoint: missing"},
		"nothing to remove":          {sound, "d.example.com", []string{"mode-"}, "no entry"},
		"endpoint of another driver": {sound, "a.example.com", []string{"endpoint=unix:///csi/b.sock"}, "already the endpoint"},
		"mistake outside of entries": {strings.ReplaceAll(sound, "v1alpha1", "v2"), "a.example.com", []string{"mode=active"}, "apiVersion"},
		"no YAML":                    {"drivers: [", "a.example.com", []string{"mode=active"}, "invalid YAML"},
		"name of another entry":      {sound, "a.example.com", []string{"name=e.example.com"}, "editor"},
	} {
		t.Run(name, func(t *testing.T) {
			after, _, err := ChangeDriver("drivers.yaml", []byte(tt.file), tt.driver, changesOf(t, tt.changes...))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v and\n%s\nwant an error with %q", err, after, tt.want)
			}
		})
	}
}

// A file in which two entries are wrong is mended one after the other.
func TestAMistakeInAnotherEntryIsLeftAndReported(t *testing.T) {
	after, left, err := ChangeDriver("drivers.yaml", []byte(changed), "a.example.com", changesOf(t, "mode=active"))
	if err != nil || len(left) != 1 || left[0].Driver != "b.example.com" || left[0].Key() != "timeout" {
		t.Errorf("got %v, and left %+v", err, left)
	}
	if want := "-    mode: paused   # ask Eve\n+    mode: active   # ask Eve"; differences(changed, string(after)) != want {
		t.Errorf("got\n%s", after)
	}
}

// Whoever removed a misspelt key would lose what it was meant to say.
func TestMistakeHasTheKeyThatWasMeantAndItsValue(t *testing.T) {
	for line, want := range map[string][3]string{ // key, near, value
		"timeuot: 90s":             {"timeuot", "timeout", "90s"},
		"timeuot: \"9\\n0\"":       {"timeuot", "timeout", ""},
		"retry: {mxa: 30s}":        {"retry.mxa", "retry.max", "30s"},
		"retry-max: 30s":           {"retry-max", "retry.max", "30s"},
		"retyr: {max: 30s}":        {"retyr", "", ""},
		"retyr: 30s":               {"retyr", "", ""},
		"timeuot: {a: b}":          {"timeuot", "", ""},
		"nothingLikeIt: something": {"nothingLikeIt", "", ""},
	} {
		_, err := Parse("f", []byte("apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers:\n  - name: a.example.com\n    endpoint: unix:///csi/a.sock\n    "+line+"\n"))
		all, _ := errors.AsType[Errors](err)
		if len(all) != 1 || !all[0].Unknown || [3]string{all[0].Key(), all[0].Near, all[0].Value} != want {
			t.Errorf("%s: got %+v, want %q", line, all, want)
		}
	}
}

func TestATextThatIsNoChangeIsRefused(t *testing.T) {
	for _, text := range []string{"", "mode", "=x", "-", "mode=a\nb", "a=b\r"} {
		if c, err := ParseChange(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, c)
		}
	}
}

// Whatever a file and a change are: the answer is an error, or a file that Parse takes, in which all that was not to change is
// as it was.
func FuzzChangeDriver(f *testing.F) {
	f.Add(changed, "a.example.com", "mode=active")
	f.Add(changed, "c.example.com", "retry.max-")
	f.Add("drivers:\n-\n  name: a\n  endpoint: unix:///a", "a", "timeout={a: b}")
	f.Add(header+"drivers: [{name: a.b, endpoint: 'unix:///x/a.sock'}, {name: z.z, endpoint: 'unix:///x/z.sock'}]\n", "a.b", "mode=observe")
	f.Add(header+"drivers: []\n", "a\xff", "endpoint=unix:///a\xff")
	f.Add("---\r\n"+strings.ReplaceAll(header, "\n", "\r\n")+"drivers:\r\n- {name: a, # c\r\n  endpoint: unix:///a}\r\n...\r\n", "a", "retry.max=3s")
	f.Add(byteOrderMark+header+"drivers:\n- name: a\n  endpoint: |-\n    unix:///a\n     # c\n  retry:\n     max: &m 3s\n     # d\n- ? name\n  : *m", "a", "retry.max-")
	f.Fuzz(func(t *testing.T, file, driver, text string) {
		c, err := ParseChange(text)
		if err != nil {
			return
		}
		after, left, err := ChangeDriver("f", []byte(file), driver, []Change{c})
		if err != nil {
			return
		}
		if _, err := Parse("f", after); (err != nil) != (len(left) > 0) {
			t.Errorf("%v, but these mistakes are left: %v\n%s", err, left, after)
		}
		if got, want := rest(string(after), driver, c.Key), rest(file, driver, c.Key); got != want {
			t.Errorf("besides the key, the file says\n%s\nand said\n%s", got, want)
		}
		if !c.Remove && strings.Count(string(after), "#") < strings.Count(file, "#") && strings.Count(text, "#") == 0 && !strings.ContainsAny(file, `"'|>`) {
			t.Errorf("a comment is lost:\n%s\nof\n%s", after, file)
		}
		if strings.Count(file, "\r\n") == strings.Count(file, "\n") && strings.Count(file, "\n") > 0 && strings.Count(string(after), "\r\n") != strings.Count(string(after), "\n") {
			t.Errorf("lines end with LF in %q", after)
		}
	})
}
