package registry

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const configureFile = "../deploy/CONFIGURE.md"

// documented returns the rows of the tables below a heading of deploy/CONFIGURE.md, by
// what stands in their first column.
func documented(t *testing.T, heading string) map[string][]string {
	t.Helper()
	text := "\n" + string(read(t, configureFile))
	_, below, found := strings.Cut(text, "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", configureFile, heading)
	}
	below, _, _ = strings.Cut(below, "\n#")
	rows := map[string][]string{}
	for line := range strings.Lines(below) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		key := strings.TrimSpace(cells[0])
		if len(cells) < 2 || !strings.HasPrefix(key, "`") {
			continue
		}
		key = strings.Trim(key, "`")
		if _, twice := rows[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		for _, cell := range cells[1:] {
			rows[key] = append(rows[key], strings.TrimSpace(cell))
		}
	}
	return rows
}

func TestEverySettingIsDocumentedWithItsRangeAndDefault(t *testing.T) {
	want := map[string][]string{}
	for _, s := range settings {
		want[s.key] = []string{s.want, "`" + s.write(&Driver{Settings: DefaultSettings()}) + "`"}
	}
	got := map[string][]string{}
	for key, cells := range documented(t, "### Settings") {
		if len(cells) != 3 || cells[2] == "" {
			t.Errorf("%s: %d columns, want what to write, the default and the meaning", key, len(cells))
			continue
		}
		got[key] = cells[:2]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-program +%s):\n%s", configureFile, diff)
	}
}

func TestEveryKeyOfTheSchemaIsDocumented(t *testing.T) {
	var all []string
	for _, heading := range []string{"## drivers.yaml", "### Settings", "### Drivers", "### Discovery"} {
		all = slices.AppendSeq(all, maps.Keys(documented(t, heading)))
	}
	want := map[string]bool{}
	visit(t, loadSchema(t), nil, func(path []string, properties map[string]any) {
		for key, s := range properties {
			full := strings.Join(append(slices.Clone(path), key), ".")
			full = strings.TrimPrefix(strings.TrimPrefix(full, "drivers.[]."), "defaults.")
			if inner, group := s.(map[string]any)["properties"]; group && len(inner.(map[string]any)) > 0 && len(path) > 0 {
				continue // its keys are there
			}
			want[full] = true
		}
	})
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(slices.Values(all))); diff != "" {
		t.Errorf("keys (-schema +%s):\n%s", configureFile, diff)
	}
}
