package hubclient

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

func TestMergeShowsADriverAsWhoWorksForItSeesIt(t *testing.T) {
	lists := func(mine, up bool, holder string) []status.Driver {
		return []status.Driver{{Name: "d", Up: up, Lease: status.Lease{Mine: mine, Holder: holder}}}
	}
	for _, tt := range []struct {
		name           string
		one, two       []status.Driver
		identity       string // of the second replica
		replica, leads string
	}{
		{"the second leads", lists(false, true, "id-2"), lists(true, true, "id-2"), "id-2", "two", "id-2"},
		{"the first leads", lists(true, true, "id-1"), lists(false, true, "id-1"), "id-2", "one", "id-1"},
		{"a sidecar leads", lists(false, false, "sidecar"), lists(false, true, "sidecar"), "id-2", "two", "sidecar"},
		{"nobody leads", lists(false, true, ""), lists(false, true, ""), "id-2", "one", ""},
		{"without leader election", nil, lists(true, true, ""), "id-2", "two", "id-2"},
		{"without an identity", nil, lists(true, true, ""), "", "two", "two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Merge([]Replica{
				{Replica: "one", Drivers: tt.one, Overview: status.Overview{Unserved: map[string]int{"d": 4, "x": 1}}},
				{Replica: "two", Drivers: tt.two, Overview: status.Overview{Identity: tt.identity, Unserved: map[string]int{"x": 2}}},
			})
			if len(v.Drivers) != 1 || v.Driver("d").Replica != tt.replica || v.Driver("d").Leader != tt.leads {
				t.Errorf("the drivers are %+v, want d as %s sees it, led by %q", v.Drivers, tt.replica, tt.leads)
			}
			if len(v.Unserved) != 1 || v.Unserved["x"] != 2 {
				t.Errorf("unserved is %v, want x: 2: the same objects are counted by each replica", v.Unserved)
			}
		})
	}
}

func TestWhatReplicasSayAlikeIsThereOnce(t *testing.T) {
	c := status.Config{Files: []status.ConfigFile{{Path: "f"}}, Errors: []string{"e"}, Warnings: []string{"w"}, Conflicts: []status.Conflict{{Driver: "d", Loser: "l"}, {Driver: "x"}}}
	v := Merge([]Replica{{Replica: "one", Overview: status.Overview{Config: c}}, {Replica: "two", Overview: status.Overview{Config: c}}})
	if got := v.Config(); !reflect.DeepEqual(got, c) || len(v.Problems()) != 0 {
		t.Errorf("got %+v, want %+v; problems %v", got, c, v.Problems())
	}
}

func TestAReplicaThatCannotCallADriverThatAnotherCanIsAProblem(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	driver := func(name string, change func(*status.Driver)) status.Driver {
		d := status.Driver{Name: name, State: "Ready", Mode: "active", Up: true, Since: now.Add(-time.Hour), Lease: status.Lease{Holder: "id-1", Mine: true}}
		if change != nil {
			change(&d)
		}
		return d
	}
	away := func(reason string, since time.Duration) func(*status.Driver) {
		return func(d *status.Driver) {
			d.State, d.Up, d.Lease.Mine, d.Reason, d.DownSince = "Connecting", false, false, reason, now.Add(-since)
			d.Lease.Holder = ""
		}
	}
	leader := []status.Driver{driver("a", nil), driver("b", nil), driver("starting", nil), driver("broken", away("refused", time.Hour))}
	follower := []status.Driver{driver("a", away("no such file", time.Hour)), driver("b", func(d *status.Driver) { d.Lease.Mine = false }),
		driver("starting", away("", time.Second)), driver("broken", away("refused", time.Hour))}
	overview := status.Overview{Replicas: []string{"id-1", "id-2"}}
	for _, seen := range [][]status.Driver{leader, follower} {
		for i := range seen {
			seen[i].Health = status.HealthOfDriver(seen[i], overview.Replicas, now)
		}
	}
	v := Merge([]Replica{{Replica: "one", Overview: overview, Drivers: leader}, {Replica: "two", Overview: overview, Drivers: follower}})
	if got, want := v.Problems(), []string{"two cannot call a, another replica can: no such file"}; !slices.Equal(got, want) {
		t.Errorf("the problems are %q, want %q", got, want)
	}
	// What the leader sees counts.
	if d := v.Driver("a"); d.Health.State != status.Fine || v.Driver("broken").Health.State != status.Broken {
		t.Errorf("the health of a is %+v, of broken %+v", d.Health, v.Driver("broken").Health)
	}
}
