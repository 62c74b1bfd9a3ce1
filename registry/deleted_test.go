package registry_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// latest returns the driver in the next snapshot, nil if that has none of the name.
func (r *registryTest) latest(name string) *registry.Driver {
	r.t.Helper()
	synctest.Wait()
	select {
	case snapshot := <-r.registry.Updates():
		if d, ok := snapshot[name]; ok {
			return &d
		}
		return nil
	default:
		r.t.Fatal("there is no new snapshot")
		return nil
	}
}

func TestDriverWindsDownWhenItsObjectIsDeletedUntilThereIsANewOne(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(header + onlyObjects + "drivers: []\n")
		r.objects.sets <- []registry.Driver{object("a", "unix:///csi/a"), object("b", "unix:///csi/b")}
		was := r.latest("a")
		if was == nil || was.WindDown {
			t.Fatalf("the driver is %+v", was)
		}
		r.objects.sets <- []registry.Driver{object("b", "unix:///csi/b")}
		gone := r.latest("a")
		if gone == nil || !gone.WindDown || gone.Source != "CSIDriver a (deleted)" {
			t.Fatalf("the driver is %+v, want it to wind down", gone)
		}
		if gone.WindDown, gone.Source = false, was.Source; *gone != *was {
			t.Errorf("the driver is to be served as %+v, want as before: %+v", gone, was)
		}
		r.objects.sets <- []registry.Driver{object("a", "unix:///csi/new"), object("b", "unix:///csi/b")}
		if got := r.latest("a"); got == nil || got.WindDown || got.Endpoint != "unix:///csi/new" {
			t.Errorf("the driver is %+v, want what its new object says", got)
		}
		// Whoever takes the annotation away takes the driver away.
		r.objects.sets <- []registry.Driver{object("a", ""), object("b", "unix:///csi/b")}
		if got := r.latest("a"); got != nil {
			t.Errorf("the driver is %+v, want none", got)
		}
		if conflicts := r.registry.Conflicts(); len(conflicts) > 0 {
			t.Errorf("conflicts %+v", conflicts)
		}
	})
}

func TestDeletedObjectsAreForgottenWithDiscovery(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(header + onlyObjects + "drivers: []\n")
		r.objects.sets <- []registry.Driver{object("a", "unix:///csi/a")}
		r.latest("a")
		r.objects.sets <- nil
		if r.latest("a") == nil {
			t.Fatal("the driver does not wind down")
		}
		r.file.say(header + "drivers: []\n")
		if got := r.latest("a"); got != nil {
			t.Errorf("the driver is %+v, want none", got)
		}
		r.file.say(header + onlyObjects + "drivers: []\n")
		r.objects.sets <- []registry.Driver{object("b", "unix:///csi/b")}
		if got := r.latest("a"); got != nil {
			t.Errorf("the driver is %+v, want none", got)
		}
	})
}

func TestDeletedObjectsTakeNoMoreMemoryAfterAThousand(t *testing.T) {
	onScripts(t, func(r *registryTest) {
		r.file.say(header + onlyObjects + "drivers: []\n")
		const all = 1200
		var set []registry.Driver
		for i := range all {
			name := fmt.Sprintf("d%d", i)
			set = append(set, object(name, "unix:///csi/"+name))
			if len(set) == 100 || i >= all-10 { // many at once, then one by one
				r.objects.sets <- set
				synctest.Wait()
				set = nil
			}
		}
		snapshot := <-r.registry.Updates()
		if _, latest := snapshot["d1198"]; !latest || len(snapshot) != 1001 {
			t.Errorf("%d drivers, the one deleted last among them %t; want 1001", len(snapshot), latest)
		}
	})
}
