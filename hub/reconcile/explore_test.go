package reconcile

import "testing"

// The explored worlds have one or two replicas of the hub, an API server and a driver. They enumerate what may happen, in
// which order, and what may be lost.
//
// Real is all that a replica does: router, caches' indexes and overlay, leader.work with all that it leads to, volume.Table,
// the plans and patches of package attach, and the fence of a lease.Term. A replica is made anew for each step from what has
// happened to it, in a synctest bubble, and its requests wait until the world answers them (replicas). So its code is
// interleaved at each request: before it takes effect, after that, and after its answer.
//
// Rewritten is: the API server (exploredAPI; JSON patches are applied by the library that the real one uses), the driver
// (exploredBooks), informers (exploredHost.change and relist), the start of a term (exploredHost.lead for manager.lead and
// leader.run) and its end after a loss (loseLease). Entries start as soon as Table.Take lets them.
//
// Left out are: the clock, which stands still but for the end of a lease, so that stuckAfter, the age of dangling publications
// and full nodes play no part, and any delay may end next; listings of the driver; graceful releases of the lease; Secrets;
// sessions that end; Nodes that are not ready; and requests that arrive after their sender has lost the lease, which the fence and the
// deadlines exclude (package lease).

// exploredConfig is one world. It begins with A as the leader and the first of the attachments attached, if that is asked for.
type exploredConfig struct {
	Name        string
	Replicas    int
	Shared      bool // the volumes are multi-node volumes
	Attachments []exploredAttachment
	Attached    bool // the world begins with the first of the attachments attached
	Used        bool // and its node uses the volume
	Users       [userSteps]int8
	Faults      int8 // breakages in one way through the world
	Breaks
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
	for _, a := range m.Attachments {
		if api.volume(a.volume) == nil {
			api, _ = api.put(volumes, newVolume(a.volume, m.Shared))
		}
	}
	if m.Attached {
		first := m.Attachments[0]
		api, _ = api.put(attachments, newAttachment(first.name, first.volume, first.node, 0))
	}
	w := &exploredWorld{api: api, lease: leaseState{holder: -1, last: -1}}
	for range m.exploredConfig.Replicas {
		w.replicas = append(w.replicas, place{replica: m.replicas.first(api)})
	}
	for !m.reached(w) { // without faults and users there is one way, but for the order
		next, err := m.steps(w)[0].Do()
		if err != nil {
			panic(err)
		}
		w = next
	}
	w.users = userState{faults: m.Faults, left: m.Users}
	if m.Used {
		w.users.used = w.driver.published[0]
	}
	return []*exploredWorld{w}
}

func (m *volumeModel) Steps(w *exploredWorld) []worldStep     { return m.steps(w) }
func (m *volumeModel) Key(w *exploredWorld, to []byte) []byte { return w.key(to) }
func (m *volumeModel) Check(w *exploredWorld) error           { return m.check(w) }
func (m *volumeModel) Reached(w *exploredWorld) bool          { return m.reached(w) }
func (m *volumeModel) Describe(w *exploredWorld) string       { return w.describe() }
