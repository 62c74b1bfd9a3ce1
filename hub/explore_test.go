package hub

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/explore"
)

// exploredConfig is one world.
type exploredConfig struct {
	Name                                                    string
	Replicas                                                int
	Volumes                                                 []string
	Shared                                                  bool // the volumes are multi-node volumes
	Attachments                                             []exploredAttachment
	Users                                                   [userSteps]int8
	Faults                                                  int8 // breakages in one way through the world
	Crashes, LostAnswers, DriverFails, Hangs, Pauses, Lists bool
	Short                                                   int // states that a short run sees
}

type exploredAttachment struct{ name, volume, node string }

var exploredConfigs = []exploredConfig{
	{Name: "one volume, crashes and lost answers", Replicas: 1, Volumes: []string{"pv1"},
		Attachments: []exploredAttachment{{"va1", "pv1", "n1"}, {"va2", "pv1", "n2"}},
		Users:       [userSteps]int8{userCreates: 2, userDeletes: 2}, Faults: 1, Crashes: true, LostAnswers: true, DriverFails: true, Hangs: true, Short: 3000},
}

// volumeModel is the world of volumes as explore takes it.
type volumeModel struct {
	exploredConfig
	replicas *replicas
}

func newVolumeModel(t *testing.T, c exploredConfig) *volumeModel {
	return &volumeModel{c, &replicas{t: t, known: map[[2]uint64]*replica{}, after: map[afterKey]*replica{}}}
}

func (m *volumeModel) Start() []*exploredWorld {
	api := &exploredAPI{}
	for _, name := range exploredNodeNames {
		api, _ = api.put(nodes, newNode(name, "id-"+name))
	}
	for _, name := range m.Volumes {
		api, _ = api.put(volumes, newVolume(name, m.Shared))
	}
	w := &exploredWorld{api: api, lease: leaseState{holder: -1, last: -1}, users: userState{faults: m.Faults, left: m.Users}}
	for range m.exploredConfig.Replicas {
		w.replicas = append(w.replicas, place{replica: m.replicas.first(api)})
	}
	return []*exploredWorld{w}
}

func (m *volumeModel) Steps(w *exploredWorld) []worldStep     { return m.steps(w) }
func (m *volumeModel) Key(w *exploredWorld, to []byte) []byte { return w.key(to) }
func (m *volumeModel) Check(w *exploredWorld) error           { return m.check(w) }
func (m *volumeModel) Reached(w *exploredWorld) bool          { return m.reached(w) }
func (m *volumeModel) Describe(w *exploredWorld) string       { return w.describe() }

// TestExploreVolumes enumerates the states of small worlds around the real core. EXPLORE=10m explores for so long.
func TestExploreVolumes(t *testing.T) {
	for _, c := range exploredConfigs {
		t.Run(c.Name, func(t *testing.T) {
			o := explore.Options{MaxStates: c.Short}
			if text := os.Getenv("EXPLORE"); text != "" {
				d, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				o = explore.Options{For: d / time.Duration(len(exploredConfigs)), Progress: os.Stderr}
			}
			m := newVolumeModel(t, c)
			report, err := explore.Run(context.Background(), m, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v\nreplicas: %d values, %d lives", report, len(m.replicas.known), m.replicas.lives)
			if report.Counterexample != nil {
				t.Error(report.Counterexample)
			}
		})
	}
}
