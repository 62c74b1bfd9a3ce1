package hub

import (
	"testing"
	"time"
)

func TestSearchesForRefusedAttachesTakeATenthOfTheTime(t *testing.T) {
	var r refusedAttaches
	now := time.Now()
	if !r.maySearch(now) {
		t.Fatal("no first search")
	}
	r.searched(now, time.Second)
	r.searched(now, time.Second) // two that began together
	if r.maySearch(now.Add(17 * time.Second)) {
		t.Error("searched again after 17 seconds, want 18")
	}
	if !r.maySearch(now.Add(18 * time.Second)) {
		t.Error("not searched again after 18 seconds")
	}
}
