package adopt

import (
	"fmt"
	"strings"
)

// Text explains the plans: for each driver the verdict, what was found, and each step.
func Text(plans []Plan) []byte {
	var b strings.Builder
	for _, p := range plans {
		fmt.Fprintf(&b, "%s\n", p.Attacher)
		for _, reason := range p.No {
			fmt.Fprintf(&b, "  no: %s\n", reason)
		}
		for _, note := range p.Notes {
			fmt.Fprintf(&b, "  note: %s\n", note)
		}
		if p.Adoptable() {
			b.WriteString(p.Entry())
		}
	}
	return []byte(b.String())
}
