package queue_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
)

// model drives a Queue at random and keeps books of what it must do.
type model struct {
	t      *testing.T
	random *rand.Rand
	queue  *queue.Queue

	workers, perNode int
	parallel         bool
	open             bool

	asked   map[queue.Key]bool     // asked for, and not begun since
	dests   map[queue.Key]lastDest // of all items, as last added or reserved
	running map[queue.Key]*run
	pending map[queue.Key]bool // delayed, and attaches elsewhere wait
	backing map[queue.Key]bool // delayed by a backoff

	small smallNodes
}

type lastDest struct {
	dest queue.Destination
	lane queue.Lane
}

type run struct {
	item  *queue.Item
	dest  queue.Destination // where it has the volume; without a handle if it has none
	lane  queue.Lane
	node  string // that it has a slot of
	again bool   // asked for since it began

	answered bool // the driver has answered its publish
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 2)), queue: queue.NewQueue(),
		asked: map[queue.Key]bool{}, dests: map[queue.Key]lastDest{}, running: map[queue.Key]*run{},
		pending: map[queue.Key]bool{}, backing: map[queue.Key]bool{},
		small: smallNodes{"node-1": {since: time.Now()}, "node-2": {since: time.Now()}}}
	m.queue.Begin()
	m.setLimits()
	m.queue.Open()
	m.open = true
	return m
}

func (m *model) setLimits() {
	m.workers, m.parallel = 2+m.random.IntN(8), m.random.IntN(3) > 0
	if perNode := m.random.IntN(3); perNode == 0 || perNode >= m.perNode && m.perNode > 0 || !m.someHaveSlots() {
		m.perNode = perNode
	}
	m.queue.SetLimits(queue.Limits{Workers: m.workers, PerNode: m.perNode, Parallel: m.parallel, Pause: func(int) time.Duration { return modelPause }})
}

// randomDest returns where a attachment may call the driver. Each has one node.
func (m *model) randomDest(name int) queue.Destination {
	node := name % 4
	p := queue.Destination{Node: fmt.Sprint("node-", node)}
	if m.random.IntN(8) > 0 {
		v := m.random.IntN(3)
		p.Target = attach.Target{VolumeHandle: fmt.Sprint("v", v), NodeID: fmt.Sprint("id-", node+4*m.random.IntN(2))}
		p.Shared = v == 0 || v == 1 && m.random.IntN(2) == 0
	}
	return p
}

func pick[K comparable, V any](m *model, from map[K]V, less func(a, b K) int) (K, bool) {
	if len(from) == 0 {
		var none K
		return none, false
	}
	keys := slices.SortedFunc(maps.Keys(from), less)
	return keys[m.random.IntN(len(keys))], true
}

func byKey(a, b queue.Key) int {
	if s, r := fmt.Sprint(a), fmt.Sprint(b); s < r {
		return -1
	} else if s > r {
		return 1
	}
	return 0
}

// step does one thing at random.
func (m *model) step() {
	switch n := m.random.IntN(46); {
	case n < 12:
		m.add()
	case n < 20:
		m.takeOne()
	case n < 28:
		if key, ok := pick(m, m.running, byKey); ok {
			m.end(key)
		}
	case n < 33:
		if key, ok := pick(m, m.running, byKey); ok {
			m.reserve(key)
		}
	case n < 35:
		m.observe()
	case n == 35:
		if key, ok := pick(m, m.dests, byKey); ok {
			m.queue.RetryNow(key)
			delete(m.pending, key)
			delete(m.backing, key)
			if r := m.running[key]; r != nil {
				r.again = true // if it fails; that is checked by itself
			}
		}
	case n == 36:
		m.setLimits()
	case n == 37:
		if m.open = !m.open; m.open {
			m.queue.Open()
		} else {
			m.queue.Shut()
		}
	case n < 41:
		if key, ok := pick(m, m.running, byKey); ok {
			m.publish(m.running[key])
		}
	case n == 41:
		m.unpublish(fmt.Sprint("node-", 1+m.random.IntN(2)))
	case n == 42 && m.random.IntN(4) == 0:
		m.changeNode(fmt.Sprint("node-", 1+m.random.IntN(2)))
	default:
		time.Sleep(time.Duration(m.random.IntN(3000)) * time.Millisecond)
	}
	m.updateDelays()
	m.compare()
}

func (m *model) add() {
	i := m.random.IntN(24)
	key, p := queue.AttachmentKey(fmt.Sprint("va-", i)), m.randomDest(i)
	l := []queue.Lane{queue.AttachLane, queue.DetachLane, queue.AttachLane, queue.DriftLane}[m.random.IntN(4)]
	if i == 23 {
		key, l, p = queue.FinalizerKey("pv"), queue.FinalizerLane, queue.Destination{}
	}
	if m.random.IntN(3) == 0 {
		m.queue.AddAndRetry(key, l, p)
	} else {
		m.queue.Add(key, l, p)
	}
	if r := m.running[key]; r != nil {
		r.again = true
		return
	}
	delete(m.pending, key)
	delete(m.backing, key)
	m.asked[key], m.dests[key] = true, lastDest{p, l}
}

// observe asks for the detach of a dangling publication.
func (m *model) observe() {
	node := m.random.IntN(4)
	key := queue.DanglingKey(attach.Target{VolumeHandle: fmt.Sprint("v", m.random.IntN(3)), NodeID: fmt.Sprint("id-", node)})
	if m.queue.Has(key) {
		return
	}
	p := queue.Destination{Target: key.Target, Node: fmt.Sprint("node-", node)}
	m.queue.Add(key, queue.DetachLane, p)
	m.asked[key], m.dests[key] = true, lastDest{p, queue.DetachLane}
}

func (m *model) takeOne() bool {
	e := m.queue.Take(time.Now())
	m.updateDelays()
	if e == nil {
		return false
	}
	at := m.dests[e.Key]
	r := &run{item: e, dest: at.dest, lane: at.lane, node: at.dest.Node}
	if m.running[e.Key] != nil || !m.asked[e.Key] && !m.queue.Has(e.Key) {
		m.t.Fatalf("%v started, which runs or was not asked for", e.Key)
	}
	calling, onNode := 0, 0
	for _, other := range m.running {
		if other.lane != queue.FinalizerLane {
			calling++
		}
		if other.node == r.node {
			onNode++
		}
	}
	if r.lane != queue.FinalizerLane && (calling >= m.workers || !m.open) {
		m.t.Fatalf("%v started beside %d others, with %d workers, lanes open: %v", e.Key, calling, m.workers, m.open)
	}
	if r.node != "" && m.perNode > 0 && onNode >= m.perNode {
		m.t.Fatalf("%v started beside %d others on %s, where %d may be", e.Key, onNode, r.node, m.perNode)
	}
	m.check(e.Key, r)
	m.running[e.Key] = r
	delete(m.asked, e.Key)
	delete(m.pending, e.Key)
	delete(m.backing, e.Key)
	return true
}

// reserve has a worker ask for a call where it is, or somewhere else.
func (m *model) reserve(key queue.Key) {
	r := m.running[key]
	if key.Kind == queue.FinalizerKind {
		return
	}
	p := r.dest
	if key.Kind == queue.AttachmentKind && m.random.IntN(2) == 0 {
		var i int
		_, _ = fmt.Sscanf(key.Name, "va-%d", &i)
		p = m.randomDest(i)
	}
	if p.Target.VolumeHandle == "" {
		return
	}
	p.Node = r.node
	moved := p != r.dest
	ok := m.queue.MayCall(r.item, p)
	r.dest = p
	m.dests[key] = lastDest{p, r.lane}
	if !ok {
		delete(m.running, key)
		m.asked[key] = true
		return
	}
	if moved {
		m.check(key, r)
	}
}

// end ends a run in some way.
func (m *model) end(key queue.Key) {
	r := m.running[key]
	if m.random.IntN(4) > 0 {
		m.publish(r)
	}
	delete(m.running, key)
	l := r.lane
	if key.Kind == queue.AttachmentKind && m.random.IntN(4) == 0 {
		l = queue.AttachLane + queue.DetachLane - min(l, queue.DetachLane)
	}
	delay := []time.Duration{0, time.Second, 3 * time.Second}[m.random.IntN(3)]
	switch m.random.IntN(4) {
	case 0, 1:
		m.done(key, r)
		return
	case 2:
		m.queue.End(r.item, queue.RequeueAfter(r.item.Lane, delay))
		m.dests[key] = lastDest{r.dest, r.lane}
		m.note(key, delay, m.pending)
	case 3:
		m.queue.End(r.item, queue.BackOff(l, delay))
		m.dests[key] = lastDest{r.dest, l}
		if delay == 0 {
			m.note(key, delay, m.pending)
		} else {
			m.note(key, delay, m.backing)
		}
	}
}

// Whatever comes in whatever order: calls that do not go along never run at the same time, detaches go
// first, nodes and workers are not overloaded, and all run in the end.
func TestQueueKeepsItsRulesWhateverComes(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			m := newModel(t, seed)
			for range 400 {
				m.step()
			}
			m.drain()
			if left := m.queue.Remains(); left != "" {
				t.Errorf("seed %d: left at the end: %s", seed, left)
			}
		})
		if t.Failed() {
			return
		}
	}
}
