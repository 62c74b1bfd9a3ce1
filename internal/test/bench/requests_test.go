package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

func TestRequestsThatAttachersMakeAreToldFromOthers(t *testing.T) {
	key := func(verb, resource, subresource string) testbed.RequestKey {
		return testbed.RequestKey{Verb: verb, Resource: resource, Subresource: subresource, Code: "200"}
	}
	before := testbed.RequestCounts{key("PATCH", "volumeattachments", ""): 100}
	after := testbed.RequestCounts{
		key("PATCH", "volumeattachments", ""):       110,
		key("PATCH", "volumeattachments", "status"): 5,
		key("PUT", "persistentvolumes", ""):         1,
		key("POST", "volumeattachments", ""):        1000, // by this program
		key("DELETE", "volumeattachments", ""):      1000,
		key("POST", "persistentvolumes", ""):        1000,
		key("GET", "csinodes", ""):                  2,
		key("LIST", "volumeattachments", ""):        1,
		key("WATCH", "volumeattachments", ""):       7,
		key("GET", "leases", ""):                    50,
		key("PUT", "leases", ""):                    20,
		key("POST", "events", ""):                   3,
		key("GET", "", ""):                          9,
	}
	want := requests{writes: 16, reads: 3, others: 23}
	if diff := cmp.Diff(want, requestsOf(before, after), cmp.AllowUnexported(requests{})); diff != "" {
		t.Error(diff)
	}
}
