package registry

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"

func TestAChangeKeepsTheFormOfAFile(t *testing.T) {
	const entry = "drivers:\n- name: a.b # c\n  endpoint: unix:///x/a.sock\n"
	for name, tt := range map[string]struct{ file, driver, change, want string }{
		"CRLF":                        {strings.ReplaceAll(header+entry, "\n", "\r\n"), "a.b", "mode=observe", "+  mode: observe\r"},
		"byte order mark":             {byteOrderMark + "drivers: []\n" + header, "a.b", "endpoint=unix:///x/a.sock", "-\ufeffdrivers: []\n+\ufeffdrivers:\n+  - name: a.b\n+    endpoint: unix:///x/a.sock"},
		"no end of the last line":     {strings.TrimSuffix(header+entry, "\n"), "a.b", "endpoint=unix:///x/b.sock", "-  endpoint: unix:///x/a.sock\n+  endpoint: unix:///x/b.sock"},
		"end of the document":         {"---\n" + header + entry + "...\n", "a.b", "mode=observe", "+  mode: observe"},
		"entry before that end":       {"---\n" + header + entry + "...\n", "c.d", "endpoint=unix:///x/c.sock", "+- name: c.d\n+  endpoint: unix:///x/c.sock"},
		"comments below a value":      {header + entry + "  mode: active # m\n      # n\n  # o\n", "a.b", "mode=observe", "-  mode: active # m\n+  mode: observe # m"},
		"comments inside a group":     {header + entry + "  retry:\n    # m\n    max: 30s # n\n    # o\n  # p\n", "a.b", "timeout=7s", "+  timeout: 7s"},
		"comments behind a group":     {header + entry + "  retry:\n    max: 30s\n    # n\n  # o\n  mode: active\n", "a.b", "retry.max-", "-  retry:\n-    max: 30s\n-    # n"},
		"comment inside a block text": {header + "drivers:\n- name: a.b\n  mode: |\n    active\n    # no comment\n  endpoint: unix:///x/a.sock\n", "a.b", "mode-", "-  mode: |\n-    active\n-    # no comment"},
		"braces on several lines":     {header + "drivers:\n- {name: a.b,\n   endpoint: 'unix:///x/a.sock'}\n# c\n", "a.b", "mode=observe", "-- {name: a.b,\n-   endpoint: 'unix:///x/a.sock'}\n+- {name: a.b, endpoint: 'unix:///x/a.sock', mode: observe}"},
		"braces of a group":           {header + entry + "  retry: {max: 30s} # r\n", "a.b", "retry.initial=1s", "-  retry: {max: 30s} # r\n+  retry: {max: 30s, initial: 1s} # r"},
		"dash on a line of its own":   {header + "drivers:\n-\n  name: a.b\n  endpoint: unix:///x/a.sock\n-\n      # deep\n  name: c.d\n  endpoint: unix:///x/c.sock\n", "a.b", "mode=observe", "+  mode: observe"},
		"hash in a text":              {header + entry + "  mode: active\n  lease:\n    name: \"a #b\" # c\n", "a.b", "lease.name=x", "-    name: \"a #b\" # c\n+    name: x # c"},
	} {
		t.Run(name, func(t *testing.T) {
			after, _, err := ChangeDriver("f", []byte(tt.file), tt.driver, changesOf(t, tt.change))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, differences(tt.file, string(after))); diff != "" {
				t.Errorf("-want +got:\n%s\nthe file:\n%s", diff, after)
			}
		})
	}
}

func TestAFormInWhichAChangeWouldLoseSomethingIsRefused(t *testing.T) {
	for name, tt := range map[string]struct{ file, change, want string }{
		"entries in brackets":           {header + "drivers: [{name: a.b, endpoint: 'unix:///x/a.sock'}, {name: z.z, endpoint: 'unix:///x/z.sock'}]\n", "mode=observe", "line 3 is a list in brackets"},
		"new entry in brackets":         {header + "drivers: [{name: z.z, endpoint: 'unix:///x/z.sock'}]\n", "endpoint=unix:///x/a.sock", "line 3 is a list in brackets"},
		"file in braces":                {"{apiVersion: attach-hub/v1alpha1, kind: DriverConfig, drivers: []}\n", "endpoint=unix:///x/a.sock", "mapping in braces"},
		"comment inside braces":         {header + "drivers:\n- {name: a.b, # why\n   endpoint: 'unix:///x/a.sock'} # c\n", "mode=observe", "lines 4 to 5 are one value with a comment inside"},
		"comment behind braces":         {header + "drivers:\n- {name: a.b,\n   endpoint: 'unix:///x/a.sock'} # c\n", "mode=observe", "lines 4 to 5 are one value with a comment"},
		"comment inside a list":         {header + "drivers:\n- name: a.b\n  endpoint:\n  - unix:///x/a.sock # c\n", "endpoint=unix:///x/a.sock", "lines 5 to 6 are one value with a comment inside"},
		"comment of a key that goes":    {header + "drivers:\n- name: a.b\n  mode: active\n  mode: paused # c\n  endpoint: unix:///x/a.sock\n", "mode=active", "a comment in or beside mode would be lost"},
		"anchor that another entry has": {header + "drivers:\n- name: a.b\n  endpoint: unix:///x/a.sock\n  mode: &m active\n- name: z.z\n  endpoint: unix:///x/z.sock\n  mode: *m\n", "mode=observe", "text editor"},
		"key behind a question mark":    {header + "drivers:\n- name: a.b\n  endpoint: unix:///x/a.sock\n  ? mode\n  : active\n", "mode=observe", "text editor"},
		"name":                          {header + "drivers:\n- name: a.b\n  endpoint: unix:///x/a.sock\n", "name=c.d", "its name cannot be changed"},
		"two line ends":                 {header + "drivers:\r\n- name: a.b\n  endpoint: unix:///x/a.sock\n", "mode=observe", "CRLF"},
		"line end of YAML only":         {header + "# a\u2028drivers: []\ndrivers: []\n", "mode=observe", "line 3 has the character U+2028"},
		"UTF-16":                        {"\xff\xfea\x00:\x00b\x00", "mode=observe", "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			after, _, err := ChangeDriver("f", []byte(tt.file), "a.b", changesOf(t, tt.change))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v and\n%s\nwant an error with %q", err, after, tt.want)
			}
		})
	}
}
