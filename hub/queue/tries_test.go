package queue

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Each script is what happens to a full node on which a was refused; "take NAME" and its like name the attach. want is
// how many tries may go then, if others than a wait.
func TestTriesOfAFullNode(t *testing.T) {
	pause := func(refused int) time.Duration { return time.Duration(refused) * time.Second }
	for name, c := range map[string]struct {
		script string
		want   int
	}{
		"each success lets two go":                        {"1s, take b, succeed b", 2},
		"and so on":                                       {"1s, take b, succeed b, take c, take d, succeed c, succeed d", 4},
		"a refusal ends that":                             {"1s, take b, succeed b, take c, succeed c, take d, refuse d", 0},
		"also for those in flight":                        {"1s, take b, succeed b, take c, take d, refuse c, succeed d", 0},
		"and those that are given back":                   {"1s, take b, succeed b, take c, take d, refuse c, giveBack d", 0},
		"it begins anew soon":                             {"1s, take b, succeed b, take c, take d, refuse c, succeed d, 1s", 1},
		"not while one is in flight":                      {"1s, take b, succeed b, take c, take d, refuse c, 1s", 0},
		"a change lets one go beside those":               {"1s, take b, succeed b, take c, take d, change", 1},
		"whose refusals are from before":                  {"1s, take b, succeed b, take c, take d, change, refuse c, refuse d", 1},
		"another than the only one that is refused":       {"1s, take a, refuse a, 2s, take a, refuse a, 1s", 1},
		"not at once":                                     {"1s, take a, refuse a, 2s, take a, refuse a", 0},
		"nor if two are refused":                          {"1s, take a, refuse a, 2s, take b, refuse b, 1s", 0},
		"also if the other was in flight":                 {"refuse b, 1s, take a, refuse a, 1s", 0},
		"nor when the first of them is refused again":     {"1s, take b, refuse b, 2s, take a, refuse a, 1s", 0},
		"a detach for another one says nothing of places": {"1s, take a, refuse a, 2s, take a, refuse a, detach, take b, succeed b, 1s", 1},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			n, permits := newlyFull("a", now, 0, pause), map[string]permit{}
			for _, step := range strings.Split(c.script, ", ") {
				what, who, _ := strings.Cut(step, " ")
				switch what {
				case "take":
					permits[who] = n.offer(who, now)
					if permits[who] == noPermit {
						t.Fatalf("%s: there is no permit", step)
					}
				case "refuse":
					n.refuse(who, permits[who], now, pause)
				case "succeed":
					n.succeed(permits[who])
				case "giveBack":
					n.giveBack(permits[who])
				case "detach":
					n.places++
				case "change":
					n.change()
				default:
					d, err := time.ParseDuration(what)
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
				}
			}
			var got []permit
			for p := n.offer("other", now); p != noPermit; p = n.offer("other", now) {
				got = append(got, p)
			}
			if len(got) != c.want || slices.Contains(got, forPlace) {
				t.Errorf("%v may go, want %d tries", got, c.want)
			}
		})
	}
}
