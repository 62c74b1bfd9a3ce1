package testbed

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"
)

func TestCreateMakesEveryKindAndDeleteRemovesIt(t *testing.T) {
	client := fake.NewClientset()
	cluster := NewCluster(client)
	objects := []Object{
		Node{Name: "n"},
		CSINode{Node: "n", Drivers: map[string]string{"d": "id"}},
		CSIDriver{Name: "d"},
		PersistentVolume{Name: "v", Driver: "d", Claim: "c"},
		PersistentVolumeClaim{Name: "c", PersistentVolume: "v"},
		Pod{Name: "p", Node: "n", Claims: []string{"c"}},
		VolumeAttachment{Name: "a", Driver: "d", Node: "n", PersistentVolume: "v"},
		Secret{Name: "s", Data: map[string]string{"key": "value"}},
	}
	if err := cluster.Create(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects { // each exists: to make it again is an error that names it
		err := cluster.Create(t.Context(), o)
		if !apierrors.IsAlreadyExists(err) || !strings.Contains(err.Error(), o.String()) {
			t.Errorf("second create of %s gave %v", o, err)
		}
	}
	if err := cluster.Delete(t.Context(), objects...); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Delete(t.Context(), objects...); err != nil {
		t.Errorf("delete of what is gone: %v", err)
	}
	if err := cluster.Create(t.Context(), objects...); err != nil {
		t.Errorf("something was left: %v", err)
	}
}

// makeObjects makes a list for Create.
func makeObjects(n int, make func(i int) Object) []Object {
	var objects []Object
	for i := range n {
		objects = append(objects, make(i))
	}
	return objects
}
