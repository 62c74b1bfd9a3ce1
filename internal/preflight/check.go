package preflight

import (
	"cmp"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// Result is the result of a check, or the worst of several.
type Result string

// The results, the worst first.
const (
	Failed  Result = "failed"
	Warning Result = "warning" // the hub can serve the driver; somebody should look
	Skipped Result = "skipped" // a check that it depends on failed
	OK      Result = "ok"
)

var ranks = map[Result]int{Failed: 0, Warning: 1, Skipped: 2, OK: 3}

// maxReason bounds the reason of a check, in bytes: it may have the text of a driver.
const maxReason = 1 << 10

// Check is one condition for serving a driver.
type Check struct {
	Name   string `json:"name"`
	Result Result `json:"result"`
	Reason string `json:"reason"`           // what was found; may have texts of drivers: hostile
	Action string `json:"action,omitempty"` // what to do, as sentences
}

func newCheck(name string, result Result, reason, action string) Check {
	return Check{name, result, csiclient.Truncate(csiclient.Sanitize(reason), maxReason), action}
}

func ok(name, reason string) Check              { return newCheck(name, OK, reason, "") }
func failed(name, reason, action string) Check  { return newCheck(name, Failed, reason, action) }
func warning(name, reason, action string) Check { return newCheck(name, Warning, reason, action) }

// skipped is a check that was not made because another one failed.
func skipped(name, earlier string) Check {
	return newCheck(name, Skipped, "not checked, because "+earlier+" failed", "")
}

// worst returns the worst result of checks, OK for none. If none of them failed, a skipped check counts as a warning: what it
// depends on failed elsewhere, and nobody knows whether the driver is in order.
func worst(checks []Check) Result {
	result := OK
	for _, c := range checks {
		if ranks[c.Result] < ranks[result] {
			result = c.Result
		}
	}
	if result == Skipped {
		return Warning
	}
	return result
}

// worseDriver orders drivers, the worst first.
func worseDriver(a, b Driver) int {
	return cmp.Or(cmp.Compare(ranks[a.Result], ranks[b.Result]), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Endpoint, b.Endpoint))
}
