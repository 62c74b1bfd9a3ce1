package statustable

import (
	"fmt"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// fullNodes returns a line for each full node of a driver on which attaches wait.
func fullNodes(v hubclient.View) []string {
	var lines []string
	for _, d := range v.Drivers {
		shown := 0
		for _, n := range d.FullNodes {
			if n.Waiting == 0 {
				continue
			}
			limit := "no limit in its CSINode"
			if n.Limit > 0 {
				limit = fmt.Sprintf("limit %d", n.Limit)
			}
			text := fmt.Sprintf("%s: node %s, %s, %d attached, %d waiting: %s", d.Name, n.Node, limit, n.Attached, n.Waiting, strings.Join(n.Line, ", "))
			if more := n.Waiting - len(n.Line); more > 0 {
				text += fmt.Sprintf(" and %d more", more)
			}
			lines, shown = append(lines, text), shown+n.Waiting
		}
		if more := d.WaitingForCapacity - shown; more > 0 && shown > 0 {
			lines = append(lines, fmt.Sprintf("%s: and %d waiting on other nodes", d.Name, more))
		}
	}
	return lines
}
