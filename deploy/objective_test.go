package deploy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// hubOfTheNight is a hub of which a test says when it last heard of CSINodes.
type hubOfTheNight struct {
	oneDriver
	heard time.Time
}

func (h *hubOfTheNight) Overview() status.Overview {
	return status.Overview{LastHeard: map[string]time.Time{"csinodes": h.heard}}
}

// night has the attaches of each driver at a minute, with their times.
var night = map[string]func(minute int) []time.Duration{
	"idle": func(int) []time.Duration { return nil },
	"fast": func(int) []time.Duration { return []time.Duration{20 * time.Second, 59 * time.Second} },
	// Each attach is late for an hour.
	"slow": func(m int) []time.Duration {
		if m >= 120 && m < 180 {
			return []time.Duration{90 * time.Second}
		}
		return []time.Duration{20 * time.Second}
	},
	// No attach ends for an hour: the hub counts those that wait for longer than 5 min.
	"failing": func(m int) []time.Duration {
		if m >= 120 && m < 180 && m%4 == 0 {
			return []time.Duration{status.LongestObjective + time.Second}
		}
		return nil
	},
	"one slow attach in a quiet night": func(m int) []time.Duration {
		switch {
		case m == 200:
			return []time.Duration{200 * time.Second}
		case m%60 == 0:
			return []time.Duration{5 * time.Second}
		}
		return nil
	},
	"two slow attaches in a quiet night": func(m int) []time.Duration {
		if m == 200 || m == 203 {
			return []time.Duration{200 * time.Second}
		}
		return nil
	},
	// 0.5 % are late.
	"busy": func(m int) []time.Duration {
		ten := slices.Repeat([]time.Duration{time.Second}, 10)
		if m%20 == 0 {
			ten[0] = 100 * time.Second
		}
		return ten
	},
	// 8 % are late.
	"worn": func(m int) []time.Duration {
		if m%12 == 0 {
			return []time.Duration{100 * time.Second}
		}
		return []time.Duration{time.Second}
	},
}

// recordedAs returns the expression of a recording rule.
func recordedAs(t *testing.T, name string) string {
	t.Helper()
	for _, r := range readRules(t).Spec.Groups[0].Rules {
		if r.Record == name {
			return r.Expr
		}
	}
	t.Fatalf("no rule records %s", name)
	return ""
}

func TestDocumentedLimitOfOneDriverIsARule(t *testing.T) {
	_, rule, _ := strings.Cut(string(readFile(t, "OPERATE.md")), "\n    attach_hub_attach_seconds_count")
	rule, _, _ = strings.Cut(rule, "\n\n")
	k := metricsOfTheHub(t)
	want, _ := k.check(recordedAs(t, "attach_hub:attaches_late:total"))
	got, problems := k.check("attach_hub_attach_seconds_count" + rule)
	if len(problems) > 0 || len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("labels %v with problems %v, want the labels of the rule, %v", got, problems, want)
	}
}

// minutes are the first and the last one at which an alert fired.
type minutes struct{ first, last int }

func TestObjectiveFiresForTheDriversThatMissIt(t *testing.T) {
	for _, version := range []int{2, 3} {
		t.Run(fmt.Sprint("Prometheus ", version), func(t *testing.T) {
			t.Parallel()
			testObjective(t, version)
		})
	}
}

func testObjective(t *testing.T, version int) {
	const hours, restart, dies = 10, 300, 400
	server := newPrometheusServer(t, "attach_hub_attach_seconds", "attach_hub_watch_last_heard_timestamp_seconds")
	server.version = version
	hub, begin := &hubOfTheNight{}, time.Unix(1_800_000_000, 0)
	metrics := status.NewMetrics()
	fired := map[string]map[string]minutes{"AttachHubObjectiveBurnsFast": {}, "AttachHubObjectiveBurns": {}, "AttachHubWatchSilent": {}}
	rules := readRules(t).Spec.Groups[0].Rules
	for m := range hours * 60 {
		now := begin.Add(time.Duration(m) * time.Minute)
		if m == restart { // counters begin at zero
			metrics = status.NewMetrics()
		}
		if m < dies {
			hub.heard = now
		}
		for driver, attaches := range night {
			for _, took := range attaches(m) {
				metrics.Driver(driver).Attach(took)
			}
			metrics.Driver(driver)
		}
		gatherer, err := metrics.Gatherer(hub)
		if err != nil {
			t.Fatal(err)
		}
		server.scrape(now, "a", gatherer)
		for _, r := range rules {
			if r.Record != "" {
				server.record(now, r.Record, r.Expr)
			}
			at, ours := fired[r.Alert]
			if !ours || m%5 > 0 {
				continue
			}
			for _, s := range server.evaluate(now, r.Expr) {
				about := s.Metric.Get("driver") + s.Metric.Get("resource")
				if _, before := at[about]; !before {
					at[about] = minutes{first: m}
				}
				at[about] = minutes{at[about].first, m}
			}
		}
	}
	names := map[string][]string{}
	for alert, at := range fired {
		names[alert] = slices.Sorted(maps.Keys(at))
	}
	want := map[string][]string{
		"AttachHubObjectiveBurnsFast": {"failing", "slow"},
		"AttachHubObjectiveBurns":     {"failing", "slow", "worn"},
		"AttachHubWatchSilent":        {"csinodes"},
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("fired for (-want +got):\n%s", diff)
	}
	for _, driver := range []string{"slow", "failing"} {
		if at := fired["AttachHubObjectiveBurnsFast"][driver]; at.first < 120 || at.first > 140 || at.last < 175 || at.last > 190 {
			t.Errorf("the fast alert for %s fired from minute %d to %d, want about from 120 to 180", driver, at.first, at.last)
		}
	}
	if at := fired["AttachHubWatchSilent"]["csinodes"]; at.first < dies+15 || at.first > dies+20 || at.last < hours*60-5 {
		t.Errorf("the silent watch fired from minute %d to %d, want from %d to the end", at.first, at.last, dies+15)
	}
}
