package main

import "testing"

func TestTargetIsMetOnItsSideOfTheValue(t *testing.T) {
	s := Samples{
		{hubName, 1, Figures{AttachRate: 85, AttachWrites: 2.004, ResidentEnd: 70e6}},
		{baselineName, 1, Figures{AttachRate: 100, AttachWrites: 2, ResidentEnd: 1}},
	}
	tests := []struct {
		target Target
		want   string
	}{
		{AtLeast(AttachRate, 0.85).OfBaseline(), "met     attaches per second at least 0.85 of the floor: 0.85"},
		{AtLeast(AttachRate, 0.86).OfBaseline(), "MISSED  attaches per second at least 0.86 of the floor: 0.85"},
		{AtLeast(AttachRate, 86), "MISSED  attaches per second at least 86: 85"},
		{AtMost(ResidentEnd, 70e6), "met     memory at the end (RSS) at most 70.0 MB: 70.0 MB"},
		{AtMost(ResidentEnd, 69e6), "MISSED  memory at the end (RSS) at most 69.0 MB: 70.0 MB"},
		{Exactly(AttachWrites, 2), "met     API writes per attach exactly 2.00: 2.00"},
		{Exactly(AttachWrites, 1.99), "MISSED  API writes per attach exactly 1.99: 2.00"},
	}
	for _, tt := range tests {
		if got, ok := tt.target.judge(s); !ok || got.String() != tt.want {
			t.Errorf("got  %q %v\nwant %q", got, ok, tt.want)
		}
	}
	if got, ok := Exactly(FirstWrites, 3).judge(s); ok {
		t.Errorf("what was not measured is judged: %v", got)
	}
}

func TestTargetsOfAllCasesAreAboutFiguresThatAreDescribed(t *testing.T) {
	for _, c := range Cases() {
		for _, target := range c.Targets {
			descriptionOf(target.figure) // or it panics
		}
		if c.turn == nil || c.Rounds < 1 || c.Drivers < 1 || c.Nodes < 1 {
			t.Errorf("%s is not complete: %+v", c.Name, c)
		}
	}
}
