package queue_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// Each script is what happens to a full node that has refused a; the attaches of others wait there too. want is how many may go then.
// The pause after n refusals is n seconds.
func TestHowManyMayGoToAFullNode(t *testing.T) {
	for name, c := range map[string]struct {
		others string // that have not been refused
		before int    // volumes that were detached while the publish of a was in flight
		script string
		want   int
	}{
		"nobody goes without a sign":                    {"b c", 0, "", 0},
		"one goes after the pause":                      {"b c", 0, "1s", 1},
		"and no other beside it":                        {"b c", 0, "1s, take b", 0},
		"also not when the next pause is over":          {"b c", 0, "1s, take b, 1h", 0},
		"the pause grows with each refusal":             {"b c d", 0, "1s, take b, refuse b, 1s", 0},
		"and ends":                                      {"b c d", 0, "1s, take b, refuse b, 2s", 1},
		"each success lets two go":                      {"b c d e", 0, "1s, take b, succeed b", 2},
		"and so on":                                     {"b c d e f g h", 0, "1s, take b, succeed b, take c, take d, succeed c, succeed d", 4},
		"until a refusal":                               {"b c d e", 0, "1s, take b, succeed b, take c, take d, refuse c", 0},
		"and none while one is in flight":               {"b c d e", 0, "1s, take b, succeed b, take c, take d, refuse c, 1s", 0},
		"also those of the success that nobody used":    {"b", 0, "1s, take b, succeed b, take a, refuse a, add c", 0},
		"but not that of a detach since it began":       {"b", 0, "1s, take b, succeed b, take a, detach, refuse a", 1},
		"the success of that lets no others go":         {"b c d e f", 0, "1s, take b, succeed b, take c, take d, refuse c, succeed d", 0},
		"but after the pause one":                       {"b c d e f", 0, "1s, take b, succeed b, take c, take d, refuse c, succeed d, 1s", 1},
		"after a success the pause is short":            {"b c d e f", 0, "1s, take b, refuse b, 2s, take c, succeed c, take d, take e, refuse d, 1s, giveBack e", 1},
		"tries side by side that are refused are one":   {"b c d e f", 0, "1s, take b, succeed b, take c, take d, refuse c, refuse d, 1s", 1},
		"one goes for each detach":                      {"b c d", 0, "detach, detach", 2},
		"its success lets no others go":                 {"b c d", 0, "detach, take b, succeed b", 0},
		"its refusal neither":                           {"b c d", 0, "detach, take b, refuse b", 0},
		"a place that was not used is that of the next": {"b c d", 0, "detach, take b, giveBack b", 1},
		"so is a try":                                   {"b c d", 0, "1s, take b, giveBack b", 1},
		"a detach lets one go beside the try":           {"b c d", 0, "1s, take b, detach", 1},
		"a detach during the refused publish counts":    {"b c d", 2, "", 2},
		"a change ends the pause":                       {"b c d", 0, "change", 1},
		"for one beside none":                           {"b c d", 0, "1s, take b, change", 0},
		"if that is not used":                           {"b c d", 0, "1s, take b, change, giveBack b", 1},
		"if that is refused, after the first pause":     {"b c d", 0, "1s, take b, refuse b, 2s, take c, change, refuse c, 1s", 1},
		"what alone is refused delays no other":         {"", 0, "1s, take a, refuse a, 2s, take a, refuse a, add b, 1s", 1},
		"not at once":                                   {"", 0, "1s, take a, refuse a, 2s, take a, refuse a, add b", 0},
		"nor if two are refused":                        {"b", 0, "1s, take b, refuse b, 2s, take a, refuse a, add c, 1s", 0},
		"also if it comes during the try":               {"", 0, "1s, take a, refuse a, 2s, take a, add b, refuse a, 1s", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, items := open(20, 0, true), map[string]*queue.Item{}
				q.SetLimits(queue.Limits{Workers: 20, Pause: func(refused int) time.Duration { return time.Duration(refused) * time.Second }})
				steps := []string{"add a", "take a"}
				for range c.before {
					steps = append(steps, "detach")
				}
				steps = append(steps, "refuse a")
				for _, other := range strings.Fields(c.others) {
					steps = append(steps, "add "+other)
				}
				if c.script != "" {
					steps = append(steps, strings.Split(c.script, ", ")...)
				}
				for _, step := range steps {
					what, who, _ := strings.Cut(step, " ")
					switch e := items[who]; what {
					case "add":
						q.Add(queue.AttachmentKey(who), queue.AttachLane, on("full", who))
						time.Sleep(time.Millisecond)
					case "take":
						items[who] = take(t, q, queue.AttachmentKey(who))
					case "refuse":
						q.Refused(e)
						q.End(e, queue.Requeue(queue.AttachLane))
					case "succeed":
						q.Published(e)
						q.End(e, queue.Finished)
					case "giveBack":
						q.End(e, queue.BackOff(queue.AttachLane, 24*time.Hour))
					case "detach":
						q.DetachedFrom("full")
					case "change":
						q.NodeChanged("full")
					default:
						d, err := time.ParseDuration(what)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
					}
				}
				if got := started(q); len(got) != c.want {
					t.Errorf("%v may go, want %d", got, c.want)
				}
			})
		})
	}
}
