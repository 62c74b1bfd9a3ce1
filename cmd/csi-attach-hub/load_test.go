package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// load is a steady load of attaches and detaches on every driver.
type load struct {
	*scene
	churns map[string]*churn // by driver
}

// loadNodes is how many nodes a load has.
const loadNodes = 4

// churn begins a load with so many volumes for each driver of the scene.
func (s *scene) churn(volumes int, seed uint64) *load {
	s.t.Helper()
	var nodes []string
	for i := range loadNodes {
		node := fmt.Sprintf("%s-node%d", s.prefix, i)
		drivers := map[string]string{}
		for _, driver := range s.drivers {
			drivers[driver] = "id-" + node
		}
		s.create(testbed.CSINode{Node: node, Drivers: drivers})
		nodes = append(nodes, node)
	}
	l := &load{scene: s, churns: map[string]*churn{}}
	for i, driver := range s.drivers {
		l.churns[driver] = startChurn(s.ctx, churnOptions{Cluster: s.cluster, Watcher: s.watcher, Driver: driver,
			Volumes: volumes, Nodes: nodes, Prefix: driver + "-v", Seed: seed<<16 + uint64(i)})
	}
	return l
}

// each does something with the load of every driver, side by side.
func (l *load) each(what string, do func(*churn) error) {
	l.t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for driver, c := range l.churns {
		all.Go(func() {
			if err := do(c); err != nil {
				mu.Lock()
				defer mu.Unlock()
				l.t.Errorf("%s: the load of %s: %v", what, driver, err)
			}
		})
	}
	all.Wait()
	if l.t.Failed() {
		l.t.FailNow()
	}
}

// stop ends the load with everything detached.
func (l *load) stop() {
	l.t.Helper()
	l.each("ends", func(c *churn) error { return c.Stop(l.ctx) })
}

// cycles is how often a volume was attached and detached.
func (l *load) cycles() (n int) {
	for _, c := range l.churns {
		n += c.Cycles()
	}
	return n
}

// allow gives the test another deadline, counted from now.
func (s *scene) allow(d time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	s.t.Cleanup(cancel)
	s.ctx = ctx
}
