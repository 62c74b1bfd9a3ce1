package testbed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRequestsAreReadFromTheMetrics(t *testing.T) {
	text := `# HELP apiserver_request_total Counter of requests.
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="storage.k8s.io",resource="volumeattachments",scope="resource",subresource="status",verb="PATCH",version="v1"} 7
apiserver_request_total{code="200",component="apiserver",dry_run="",group="storage.k8s.io",resource="volumeattachments",scope="resource",subresource="status",verb="PATCH",version="v1beta1"} 2
apiserver_request_total{code="0",component="",dry_run="",group="",resource="",scope="",subresource="a \"b\", c}",verb="GET",version=""} 1e+03
apiserver_request_total_other{code="200"} 5
`
	got, err := parseRequests([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := RequestCounts{
		{Verb: "PATCH", Group: "storage.k8s.io", Resource: "volumeattachments", Subresource: "status", Code: "200"}: 9,
		{Verb: "GET", Subresource: `a "b", c}`, Code: "0"}:                                                          1000,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
	for _, bad := range []string{`apiserver_request_total{code="200} 1`, `apiserver_request_total{code="200"} many`, `apiserver_request_total{code`} {
		if _, err := parseRequests([]byte(bad)); err == nil {
			t.Errorf("no error for %s", bad)
		}
	}
}

func TestRequestsSinceAnEarlierCount(t *testing.T) {
	get, post, patch := RequestKey{Verb: "GET"}, RequestKey{Verb: "POST"}, RequestKey{Verb: "PATCH"}
	before := RequestCounts{get: 5, post: 3, patch: 100}
	after := RequestCounts{get: 5, post: 10, patch: 4} // patch: the API server was started again
	diff := after.Since(before)
	if d := cmp.Diff(RequestCounts{post: 7, patch: 4}, diff); d != "" {
		t.Errorf("requests differ (-want +got):\n%s", d)
	}
	if writes := diff.Sum(IsWrite); writes != 11 {
		t.Errorf("%d writes, want 11", writes)
	}
}
