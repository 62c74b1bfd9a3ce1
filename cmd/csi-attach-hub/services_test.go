package main

import (
	"context"
	"errors"
	"testing"
)

func TestAServerThatFailsStopsTheHubInOrder(t *testing.T) {
	broken := errors.New("accept: too many open files")
	var last bool // the other one ran for as long as there was work
	worked := false
	err := runWithServices(t.Context(), []func(context.Context) error{
		func(context.Context) error { return broken },
		func(ctx context.Context) error { <-ctx.Done(); last = worked; return nil },
	}, func(ctx context.Context) error {
		<-ctx.Done()
		worked = true
		return nil
	})
	if !errors.Is(err, broken) || !last {
		t.Errorf("got %v, and the leases ended after the work: %v", err, last)
	}
}

func TestWhatIsNeededRunsUntilTheWorkHasEnded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	worked := false
	err := runWithServices(ctx, []func(context.Context) error{func(ctx context.Context) error {
		<-ctx.Done()
		if !worked {
			t.Error("it ended before the work")
		}
		return nil
	}}, func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		worked = true
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
