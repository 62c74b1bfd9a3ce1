package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	// balanceEvery is how often the leases are listed while two replicas come to share them.
	balanceEvery = 100 * time.Millisecond
	// balanceFor bounds the time until they share the drivers.
	balanceFor = time.Minute
	// fairShare is the least part of the drivers that each of two replicas leads: at most one and a half times its share
	// goes to the other.
	fairShare = 0.25
)

// measureReplica starts a second replica beside an idle hub for all drivers, and measures how they share them. The
// second one has ended when measureReplica returns.
func measureReplica(ctx context.Context, s *stage, first *attacher) (figures Figures, err error) {
	before, err := s.Plane.Requests(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	second, err := s.StartHub(ctx, testbed.HubOptions{Name: "second", Args: []string{"--profiling"}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, second.Stop(context.WithoutCancel(ctx), stopGrace)) }()
	both := &attacher{name: hubName, processes: []*testbed.Process{first.processes[0], second.Process}, urls: []string{first.urls[0], second.URL}}
	figures = Figures{}
	err = both.whileRuns(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, balanceFor, fmt.Errorf("the replicas do not share the drivers after %v", balanceFor))
		defer cancel()
		if err := s.awaitBalance(ctx); err != nil {
			return err
		}
		figures[Balance] = time.Since(began).Seconds()
		after, err := s.Plane.Requests(ctx)
		if err != nil {
			return err
		}
		figures[BalanceWrites] = float64(after.Since(before).Sum(func(k testbed.RequestKey) bool { return k.Resource == "leases" && testbed.IsWrite(k) }))
		two := Figures{}
		if err := two.addLeases(ctx, s, both); err != nil {
			return err
		}
		figures[TwoLeaseWrites], figures[TwoCPU] = two[LeaseWrites], two[IdleCPU]
		return nil
	})
	return figures, err
}

// awaitBalance blocks until two replicas hold all leases of drivers, and each its fair share.
func (s *stage) awaitBalance(ctx context.Context) error {
	for {
		leases, err := driverLeases(ctx, s)
		if err != nil {
			return err
		}
		held := map[string]int{}
		for _, l := range leases {
			held[*l.Spec.HolderIdentity]++
		}
		least := len(s.Drivers)
		for _, n := range held {
			least = min(least, n)
		}
		if len(leases) == len(s.Drivers) && len(held) == 2 && least >= int(fairShare*float64(len(s.Drivers))) {
			return nil
		}
		if pause(ctx, balanceEvery); ctx.Err() != nil {
			return fmt.Errorf("%d leases are held, by replica: %v: %w", len(leases), held, context.Cause(ctx))
		}
	}
}
