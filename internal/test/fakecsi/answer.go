package fakecsi

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Describe returns what the knobs have changed, a line for each change. books are those from before the change.
func (k Knobs) Describe(books Books) string {
	driver := cmp.Or(k.Name, books.Driver)
	lines := slices.Concat(k.describeAnnounced(books), k.describeHangs(books), k.describeFaults(), k.describeStorage())
	if len(lines) == 0 {
		lines = []string{"nothing changed; the knobs are " + sortedNames(fieldsByName(reflect.ValueOf(&k).Elem()))}
	}
	for i, line := range lines {
		lines[i] = driver + ": " + line
	}
	return strings.Join(lines, "\n")
}

// describeAnnounced is about what the driver says of itself, and about its speed and limits.
func (k Knobs) describeAnnounced(books Books) []string {
	var lines []string
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if k.Name != "" {
		note("the driver now calls itself %s instead of %s", k.Name, books.Driver)
	}
	if k.Capabilities != nil {
		note("capabilities are now %s", cmp.Or(joinStrings(k.Capabilities), "none"))
	}
	for _, m := range slices.Sorted(maps.Keys(k.Latency)) {
		l, name := k.Latency[m], string(cmp.Or(m, "each other method"))
		if l.Jitter > 0 {
			note("%s now takes %v to %v", name, l.Base, l.Base+l.Jitter)
		} else {
			note("%s now takes %v", name, l.Base)
		}
	}
	if k.NotReady != nil {
		note("Probe now answers ready=%v", !*k.NotReady)
	}
	if k.FinishAbandoned != nil && *k.FinishAbandoned {
		note("new calls run to their end when their caller leaves")
	} else if k.FinishAbandoned != nil {
		note("new calls end without effect when their caller leaves")
	}
	if k.MaxVolumesPerNode != nil {
		note("%s", limitText(*k.MaxVolumesPerNode, books))
	}
	if k.PublishContext != nil {
		note("a publish now returns a context with the keys [%s]", strings.Join(slices.Sorted(maps.Keys(k.PublishContext)), ", "))
	}
	return lines
}

// limitText names the nodes that are full with a limit of volumes per node.
func limitText(limit int, books Books) string {
	if limit == 0 {
		return "no limit of volumes per node"
	}
	perNode := map[string]int{}
	for _, nodes := range books.Attached {
		for node := range nodes {
			perNode[node]++
		}
	}
	full := 0
	for _, n := range perNode {
		if n >= limit {
			full++
		}
	}
	return fmt.Sprintf("ControllerPublishVolume now answers ResourceExhausted from %s per node on; %s at the limit", count(limit, "volume"), count(full, "node"))
}

func (k Knobs) describeHangs(books Books) []string {
	var lines []string
	waiting := func(m Method) string {
		n := books.Methods[m].InFlight.Now
		if m == "" {
			n = books.InFlight.Now
		}
		return count(n, "call") + " in flight"
	}
	if k.ReleaseAll {
		lines = append(lines, fmt.Sprintf("all hangs released; %s", waiting("")))
	}
	for _, h := range k.Release {
		lines = append(lines, fmt.Sprintf("%s released; %s", scope(h.Method, h.Volume, h.Node), waiting(h.Method)))
	}
	for _, h := range k.Hang {
		verb := "now hangs"
		if h.AfterEffect {
			verb = "now changes the storage and then hangs"
		}
		lines = append(lines, fmt.Sprintf("%s %s; %s", scope(h.Method, h.Volume, h.Node), verb, waiting(h.Method)))
	}
	return lines
}

func (k Knobs) describeFaults() []string {
	var lines []string
	if k.ClearFaults {
		lines = append(lines, "all faults cleared")
	}
	for _, f := range k.Fail {
		until := "until clearFaults"
		if f.Count > 0 {
			until = "for " + count(f.Count, "call")
		}
		after := ""
		if f.AfterEffect {
			after = " after it has changed the storage"
		}
		lines = append(lines, fmt.Sprintf("%s now fails with %s%s, %s", scope(f.Method, f.Volume, f.Node), f.Code, after, until))
	}
	return lines
}

func (k Knobs) describeStorage() []string {
	var lines []string
	for _, a := range k.LoseAttachments {
		lines = append(lines, fmt.Sprintf("volume %s detached from %s without a call", a.Volume, cmp.Or(a.Node, "all nodes")))
	}
	for _, v := range k.LoseVolumes {
		lines = append(lines, fmt.Sprintf("volume %s removed from the storage", v))
	}
	for _, v := range k.GainVolumes {
		lines = append(lines, fmt.Sprintf("volume %s added to the storage", v))
	}
	for _, a := range k.GainAttachments {
		lines = append(lines, fmt.Sprintf("volume %s attached to %s without a call", a.Volume, a.Node))
	}
	return lines
}

// scope names the calls that a hang or a fault is for.
func scope(m Method, volume, node string) string {
	text := string(cmp.Or(m, "every method"))
	if volume != "" {
		text += " of volume " + volume
	}
	if node != "" {
		text += " on " + node
	}
	return text
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
