package testbed

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
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

// slow is an object whose creation takes a second.
type slow struct {
	running, most *atomic.Int32
	err           error
}

func (slow) String() string { return "slow" }

func (s slow) requests(kubernetes.Interface) requests { return requests{create: s.create} }

func (s slow) create(context.Context) error {
	for n, most := s.running.Add(1), s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(time.Second)
	s.running.Add(-1)
	return s.err
}

func TestCreateHasABoundedNumberOfRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		objects := makeObjects(100, func(int) Object { return slow{running: &running, most: &most} })
		if err := NewCluster(nil).Create(t.Context(), objects...); err != nil {
			t.Fatal(err)
		}
		if most.Load() != inParallel {
			t.Errorf("%d requests in flight, want %d", most.Load(), inParallel)
		}
	})
}

func TestCreateReturnsTheFirstErrorAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		objects := makeObjects(100, func(i int) Object {
			return slow{running: &running, most: &most, err: fmt.Errorf("refused %d", i)}
		})
		started := time.Now()
		err := NewCluster(nil).Create(t.Context(), objects...)
		if err == nil || !strings.Contains(err.Error(), "create slow: refused") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(started); took > 2*time.Second {
			t.Errorf("went on for %v after the error", took)
		}
	})
}

func TestPodUsesClaimsAsFileSystems(t *testing.T) {
	got := Pod{Name: "p", Node: "n", Claims: []string{"files", "more"}}.Build()
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"},
		Spec: corev1.PodSpec{
			NodeName: "n",
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				VolumeMounts: []corev1.VolumeMount{{Name: "volume-0", MountPath: "/volume-0"}, {Name: "volume-1", MountPath: "/volume-1"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "volume-0", VolumeSource: claim("files")},
				{Name: "volume-1", VolumeSource: claim("more")},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod differs (-want +got):\n%s", diff)
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
