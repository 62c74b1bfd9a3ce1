package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestTheAPIShowsTheClaimAndThePodsThatWaitForAVolume(t *testing.T) {
	s := newScene(t, "pods")
	driver, socket := s.entry("driver")
	_, control := s.startDriver(driver, socket)
	if err := control.Set(s.ctx, fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}}); err != nil {
		t.Fatal(err)
	}
	s.create(testbed.Node{Name: "pods-a"}, testbed.CSINode{Node: "pods-a", Drivers: map[string]string{driver: "id"}})
	const name = "pods-data"
	s.bound(name, driver, "pods-a")
	s.create(testbed.Pod{Name: "pods-second", Node: "pods-a", Claims: []string{name}}, testbed.Pod{Name: "pods-elsewhere", Node: "pods-b", Claims: []string{name}})
	server := s.startVisibleHub()
	s.attach(name, driver, "pods-a")

	var list status.AttachmentList
	want := []string{"default/pods-data", "default/pods-second"}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		list = status.AttachmentList{}
		getJSON(t, server+"/api/v1/attachments?driver="+driver, &list)
		if len(list.Attachments) == 1 && slices.Equal(list.Attachments[0].Pods, want) {
			break
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			t.Fatalf("Pods %v were never shown: %+v", want, list)
		}
	}
	if claim := list.Attachments[0].Claim; claim != "default/"+name {
		t.Errorf("the claim is shown as %q, want default/%s", claim, name)
	}
	var overview status.Overview
	if getJSON(t, server+"/api/v1/overview", &overview); !overview.PodsKnown {
		t.Error("the overview says that Pods are not known")
	}
	if err := control.Set(s.ctx, fakecsi.Knobs{ReleaseAll: true, ClearFaults: true}); err != nil {
		t.Fatal(err)
	}
	s.waitFor("attached", isAttached(name))
}

// getJSON reads an answer of the API.
func getJSON(t *testing.T, url string, into any) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}
