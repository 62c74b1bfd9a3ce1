package reconcile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/explore"
)

// seedsModel is a world that collects the objects of its states as seeds for FuzzDecide of package attach.
type seedsModel struct {
	*volumeModel
	mu    *sync.Mutex
	seeds map[string]bool // texts of corpus files
}

func (m seedsModel) Check(w *exploredWorld) error {
	for _, va := range w.api.attachments() {
		pv, node := w.api.volume(attach.VolumeName(va)), w.api.find(nodes, va.Spec.NodeName)
		var text strings.Builder
		text.WriteString("go test fuzz v1\n")
		for _, o := range []apiObject{va, pv, node} {
			data := []byte("{}")
			if o != apiObject(nil) && (o != pv || pv != nil) {
				o = o.DeepCopyObject().(apiObject)
				o.SetResourceVersion("")
				o.SetUID("u")
				o.SetCreationTimestamp(metav1.Time{})
				data, _ = json.Marshal(o)
			}
			fmt.Fprintf(&text, "[]byte(%q)\n", data)
		}
		text.WriteString("byte('\\xff')\n")
		// The names of the driver that the fuzz test has.
		seed := strings.NewReplacer(exploredDriver, "block.csi.example.com", "explored-example-com", "block-csi-example-com").Replace(text.String())
		m.mu.Lock()
		m.seeds[seed] = true
		m.mu.Unlock()
	}
	return m.volumeModel.Check(w)
}

// TestExploredStatesBecomeSeeds writes the corpus of FuzzDecide, one file for each shape that objects have in the explored
// worlds.
func TestExploredStatesBecomeSeeds(t *testing.T) {
	if os.Getenv("EXPLORE_SEEDS") == "" {
		t.Skip("EXPLORE_SEEDS=1 writes the seeds of fuzz tests")
	}
	seeds := map[string]bool{}
	for _, c := range exploredConfigs {
		c.Attachments = c.Attachments[:1]
		m := seedsModel{newVolumeModel(t, c), &sync.Mutex{}, seeds}
		if _, err := explore.Run(t.Context(), m, explore.Options{MaxStates: shortStates}); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join("attach", "testdata", "fuzz", "FuzzDecide")
	old, err := filepath.Glob(filepath.Join(folder, "explored-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	for i, seed := range slices.Sorted(maps.Keys(seeds)) {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("explored-%02d", i+1)), []byte(seed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d seeds", len(seeds))
}
