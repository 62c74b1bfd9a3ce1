package baseline

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// store is a reflector's store that keeps nothing: it hands on what is seen.
type store struct {
	see    func(*storagev1.VolumeAttachment)
	forget func(*storagev1.VolumeAttachment)
	ready  func()
}

// Add is called by the reflector, as are the others, one at a time.
func (s *store) Add(obj any) error {
	s.see(obj.(*storagev1.VolumeAttachment))
	return nil
}

// Update hands on the new state.
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete hands on what is gone.
func (s *store) Delete(obj any) error {
	s.forget(obj.(*storagev1.VolumeAttachment))
	return nil
}

// Replace hands on all, at the beginning and after the watch was interrupted.
func (s *store) Replace(all []any, _ string) error {
	for _, obj := range all {
		s.see(obj.(*storagev1.VolumeAttachment))
	}
	s.ready()
	return nil
}

// Resync has nothing to do.
func (s *store) Resync() error { return nil }

// lister is what the clientset has for VolumeAttachments.
type lister interface {
	List(ctx context.Context, opts metav1.ListOptions) (*storagev1.VolumeAttachmentList, error)
}

func listAll(l lister) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return l.List(ctx, opts) }
}
