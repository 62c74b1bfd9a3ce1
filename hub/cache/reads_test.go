package cache

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Older API servers take any text for the name of the PersistentVolume in a
// VolumeAttachment, that of today does not, so it cannot be asked for one.
func TestVolumeOfANameThatNoneCanHaveIsNotThereAndNotAskedFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	defer server.Close()
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	cluster := New(kube)
	for _, name := range []string{"", ".", "..", "../../api/v1/secrets", "a/status", "%2e%2e?a=b#c", "Ü \u202e\x00\n", strings.Repeat("v", 254)} {
		if pv, err := cluster.ReadVolume(t.Context(), name); pv != nil || err != nil {
			t.Errorf("%.20q: got %v, %v", name, pv, err)
		}
	}
}
