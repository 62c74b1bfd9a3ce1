package queue

import (
	"slices"
	"testing"
	"time"
)

// Each script is what happens to a full node, and which permit an attach may then take: "place", "try" or "none".
func TestFullNodeDecidesHowManyMayGo(t *testing.T) {
	pause := func(refused int) time.Duration { return time.Duration(refused) * time.Second }
	for name, c := range map[string]struct {
		detached int // since the refused publish began
		script   []string
		want     []string
	}{
		"nobody goes without a sign":                       {0, nil, []string{"none"}},
		"one goes after the pause":                         {0, []string{"1s"}, []string{"try"}},
		"and no other beside it":                           {0, []string{"1s", "take"}, []string{"none"}},
		"also not when the next pause is over":             {0, []string{"1s", "take", "1h"}, []string{"none"}},
		"the pause grows with each refusal":                {0, []string{"1s", "take", "refuse", "1s"}, []string{"none"}},
		"and ends":                                         {0, []string{"1s", "take", "refuse", "2s"}, []string{"try"}},
		"a success lets the next go, and so on":            {0, []string{"1s", "take", "succeed", "take", "succeed"}, []string{"try"}},
		"until a refusal":                                  {0, []string{"1s", "take", "succeed", "take", "refuse"}, []string{"none"}},
		"after which the pause is short again":             {0, []string{"1s", "take", "refuse", "2s", "take", "succeed", "take", "refuse", "1s"}, []string{"try"}},
		"one goes for each detach":                         {0, []string{"detach", "detach"}, []string{"place", "place", "none"}},
		"its success starts no chain":                      {0, []string{"detach", "take", "succeed"}, []string{"none"}},
		"its refusal ends the permit":                      {0, []string{"detach", "take", "refuse"}, []string{"none"}},
		"and another volume is tried soon":                 {0, []string{"1s", "take", "refuse", "detach", "take", "refuse", "1s"}, []string{"try"}},
		"a permit that was not used goes on":               {0, []string{"detach", "take", "giveBack"}, []string{"place", "none"}},
		"so does that of the fallback":                     {0, []string{"1s", "take", "giveBack"}, []string{"try", "none"}},
		"a detach lets one go beside the fallback":         {0, []string{"1s", "take", "detach"}, []string{"place", "none"}},
		"a detach during the refused publish counts":       {2, nil, []string{"place", "place", "none"}},
		"a change lets one go":                             {0, []string{"change"}, []string{"try", "none"}},
		"a change during an attempt is not lost":           {0, []string{"1s", "take", "change", "refuse"}, []string{"try", "none"}},
		"one change is one attempt":                        {0, []string{"1s", "take", "change", "refuse", "take", "refuse"}, []string{"none"}},
		"a change and a success are one chain":             {0, []string{"1s", "take", "change", "succeed"}, []string{"try", "none"}},
		"a change after one that was not used is not lost": {0, []string{"1s", "take", "change", "giveBack"}, []string{"try", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			n := newlyFull("v", now, c.detached, pause)
			var last permit
			for _, step := range c.script {
				switch step {
				case "take":
					last = n.offer("v", now)
				case "refuse":
					n.refuse("v", last, now, pause)
				case "succeed":
					n.succeed(last)
				case "giveBack":
					n.giveBack(last)
				case "detach":
					n.places++
				case "change":
					n.change()
				default:
					d, err := time.ParseDuration(step)
					if err != nil {
						t.Fatal(err)
					}
					now = now.Add(d)
				}
			}
			var got []string
			for range c.want {
				got = append(got, map[permit]string{noPermit: "none", forPlace: "place", forTry: "try"}[min(n.offer("v", now), forTry)])
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// newlyFull returns a node on which the driver has refused the publish of an item now.
func newlyFull(name string, now time.Time, places int, pause func(int) time.Duration) *fullNode {
	n := &fullNode{since: now, places: places}
	n.refuse(name, forPlace, now, pause)
	return n
}
