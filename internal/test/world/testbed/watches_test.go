package testbed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWatchesThatGoOnAreCountedByResource(t *testing.T) {
	got, err := parseWatches([]byte(`# TYPE apiserver_longrunning_requests gauge
apiserver_longrunning_requests{component="apiserver",group="storage.k8s.io",resource="volumeattachments",verb="WATCH",version="v1"} 2
apiserver_longrunning_requests{component="apiserver",group="storage.k8s.io",resource="volumeattachments",verb="WATCH",version="v1beta1"} 1
apiserver_longrunning_requests{component="apiserver",group="",resource="pods",verb="CONNECT",version="v1"} 1
apiserver_request_total{code="200",resource="volumeattachments",verb="WATCH"} 7
`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"volumeattachments": 3}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := parseWatches([]byte("apiserver_longrunning_requests{verb=WATCH} 1\n")); err == nil {
		t.Error("a line that makes no sense is no error")
	}
}
