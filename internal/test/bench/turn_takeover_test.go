package main

import (
	"context"
	"testing"
)

func TestStandbyTakesOverAllDriversWithoutCallsOfItsOwn(t *testing.T) {
	c := Case{Name: "takeovers", Nodes: 2, Latency: latency, alone: true, booked: true}
	c.turn = func(ctx context.Context, s *stage, a *attacher) (Figures, error) {
		figures := Figures{}
		return figures, s.takeovers(ctx, a, figures)
	}
	got := measureTiny(t, c)
	if got[TakeoverLed] <= 0 { // all 4, unless the other one has begun to share on a slow machine
		t.Error("the replica that was killed led no driver")
	}
	if got[TakeoverCall] <= 0 || got[TakeoverCall] > got[TakeoverAttached] || got[TakeoverAll] <= 0 {
		t.Errorf("first call after %v s, all attached after %v s, all led after %v s: want them in this order, and measured",
			got[TakeoverCall], got[TakeoverAttached], got[TakeoverAll])
	}
	if got[TakeoverCalls] != 0 || got[TakeoverWrites] != 0 {
		t.Errorf("%v calls and %v writes by takeovers, want none", got[TakeoverCalls], got[TakeoverWrites])
	}
}
