package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// summary returns one table of all cases, for people: the figures that have a bound, and the most important ones where there are
// several competitors. What must be an exact number is counted below it, and named if it is missed.
func (r report) summary() string {
	var b strings.Builder
	competing := []Figure{AttachRate, DetachRate, AttachP99, CPU, PodRate}
	b.WriteString("|case|figure|hub|hub / baseline|csi-attacher|tuned|target|\n|---|---|--:|--:|--:|--:|---|\n")
	exact, missed, dates, machines := 0, []string{}, map[string]bool{}, map[string]bool{}
	for _, c := range r.measured() {
		s := r[c.Name].Samples
		dates[r[c.Name].Date.Format(time.DateOnly)], machines[r[c.Name].Machine] = true, true
		bounds := map[Figure]string{}
		for _, t := range c.Targets {
			text, measured := t.verdict(s)
			switch _, bound, _ := strings.Cut(text, string(t.figure)+" "); {
			case measured && t.compare != "exactly":
				limit, _, _ := strings.Cut(bound, ":")
				bounds[t.figure] = limit + bound[strings.LastIndex(bound, ","):]
			case measured:
				exact++
				if strings.HasSuffix(text, "**missed**") {
					missed = append(missed, c.Name+": "+text)
				}
			}
		}
		for _, d := range described {
			bound, bounded := bounds[d.figure]
			if value, measured := s.median(hubName, d.figure); measured && (bounded || len(s.competitors()) > 1 && slices.Contains(competing, d.figure)) {
				row := []string{c.Name, string(d.figure), d.show(value), "-"}
				if ratio, ok := s.ratio(d.figure); ok && !c.alone {
					row[3] = ratio.String()
				}
				for _, name := range []string{sidecarName, tunedSidecarName} {
					text := "-"
					if value, measured := s.median(name, d.figure); measured {
						text = d.show(value)
					}
					row = append(row, text)
				}
				fmt.Fprintf(&b, "|%s|%s|\n", strings.Join(row, "|"), bound)
			}
		}
	}
	fmt.Fprintf(&b, "\n%d of %d exact targets are met (writes, calls, reads, leases).\n", exact-len(missed), exact)
	for _, text := range missed {
		fmt.Fprintf(&b, "- %s\n", text)
	}
	fmt.Fprintf(&b, "\nMeasured on %s: %s.\n", strings.Join(slices.Sorted(maps.Keys(dates)), ", "), strings.Join(slices.Sorted(maps.Keys(machines)), "; "))
	return b.String()
}
