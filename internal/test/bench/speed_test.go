package main

import "testing"

func TestTheSpeedOfTheMachineIsMeasured(t *testing.T) {
	if speed := machineSpeed(t.Context()); speed < 1 {
		t.Errorf("the machine hashes %v MB/s", speed)
	}
}
