package testbed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestWaitForWakesOnAChange(t *testing.T) {
	client := fake.NewClientset(VolumeAttachment{Name: "a", Driver: "d", Node: "n", PersistentVolume: "v"}.Build())
	w, err := WatchVolumeAttachments(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	asked := make(chan struct{}, 100)
	result := make(chan error)
	go func() {
		result <- w.WaitFor(t.Context(), "attached", func(all []*storagev1.VolumeAttachment) bool {
			asked <- struct{}{}
			return AllAttached(1)(all)
		})
	}()
	<-asked // and it was not attached yet
	va := w.List()[0].DeepCopy()
	va.Status.Attached = true
	if _, err := client.StorageV1().VolumeAttachments().UpdateStatus(t.Context(), va, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestWaitForSaysWhatIsMissing(t *testing.T) {
	attached := VolumeAttachment{Name: "attached", PersistentVolume: "v1"}.Build()
	attached.Status.Attached = true
	broken := VolumeAttachment{Name: "broken", PersistentVolume: "v2"}.Build()
	broken.Status.AttachError = &storagev1.VolumeError{Message: "no such disk"}
	w, err := WatchVolumeAttachments(t.Context(), fake.NewClientset(attached, broken), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = w.WaitFor(ctx, "two attached volumes", AllAttached(2))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error is %v, want that of the context", err)
	}
	for _, want := range []string{"two attached volumes", "1 attached", "broken", "no such disk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not say %q", err, want)
		}
	}
}

func TestWatcherTellsEveryChangeInOrder(t *testing.T) {
	client := fake.NewClientset(Node{Name: "first"}.Build())
	changes := make(chan string, 10)
	describe := func(o interface{ GetName() string }, there bool) string {
		if !there {
			return "-"
		}
		return o.GetName()
	}
	w, err := WatchVolumeAttachments(t.Context(), client, func(was, now *storagev1.VolumeAttachment) {
		changes <- describe(was, was != nil) + ">" + describe(now, now != nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cluster := NewCluster(client)
	va := VolumeAttachment{Name: "a", PersistentVolume: "v"}
	if err := cluster.Create(t.Context(), va); err != nil {
		t.Fatal(err)
	}
	got := []string{<-changes} // before the watch has begun, the fake would show nothing of what is gone again
	if err := cluster.Delete(t.Context(), va); err != nil {
		t.Fatal(err)
	}
	got = append(got, <-changes)
	if want := []string{"->a", "a>-"}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}
