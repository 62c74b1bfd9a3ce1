package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// report is the result of a demo in which everything held.
type report struct {
	began   time.Time     // the first Pod
	setUp   time.Duration // until the hub was connected to every driver
	others  time.Duration // until all were attached but those of the hanging driver
	attach  time.Duration // until the nodes named every volume, from began like others
	detach  time.Duration // from the first deletion until nothing was attached
	page    string        // URL of the hub's status page
	drivers []driverReport
}

// driverReport is the result of one driver.
type driverReport struct {
	row
	volumes     int
	publishes   int
	unpublishes int
}

// String returns the report as text.
func (r report) String() string {
	cells := [][]string{{"driver", "volumes", "publishes", "per attach", "unpublishes", "per detach", "errors", "p50", "p99"}}
	var volumes, publishes, unpublishes int
	for _, d := range r.drivers {
		volumes, publishes, unpublishes = volumes+d.volumes, publishes+d.publishes, unpublishes+d.unpublishes
		cells = append(cells, []string{
			shortName(d.Driver), strconv.Itoa(d.volumes),
			strconv.Itoa(d.publishes), ratio(d.publishes, d.volumes),
			strconv.Itoa(d.unpublishes), ratio(d.unpublishes, d.volumes),
			strconv.Itoa(d.Failed), d.Took.show(d.Took.P50), d.Took.show(d.Took.P99),
		})
	}
	cells = append(cells, []string{
		"all", strconv.Itoa(volumes), strconv.Itoa(publishes), ratio(publishes, volumes),
		strconv.Itoa(unpublishes), ratio(unpublishes, volumes), "", "", "",
	})
	var b strings.Builder
	b.WriteString("\nEverything held.\n\n")
	for _, text := range align(cells) {
		fmt.Fprintf(&b, "  %s\n", strings.TrimRight(text, " "))
	}
	fmt.Fprintf(&b, `
  calls  one at a time for each volume, each counted in the driver's own books
  p50    from a VolumeAttachment's creation until it was attached, as a watcher saw it
  times  set-up %s, attach %s (without the hanging driver %s), detach %s
`, showDuration(r.setUp), showDuration(r.attach), showDuration(r.others), showDuration(r.detach))
	return b.String()
}

func ratio(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n)/float64(of))
}
