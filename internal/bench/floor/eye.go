package floor

import (
	"context"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// eye is a reflector's store that keeps nothing: it hands on what is seen.
type eye struct {
	see    func(*storagev1.VolumeAttachment)
	forget func(*storagev1.VolumeAttachment)
	ready  func()
}

// Add is called by the reflector, as are the others, one at a time.
func (e *eye) Add(obj any) error {
	e.see(obj.(*storagev1.VolumeAttachment))
	return nil
}

// Update hands on the new state.
func (e *eye) Update(obj any) error { return e.Add(obj) }

// Delete hands on what is gone.
func (e *eye) Delete(obj any) error {
	e.forget(obj.(*storagev1.VolumeAttachment))
	return nil
}

// Replace hands on all, at the beginning and after the watch was interrupted.
func (e *eye) Replace(all []any, _ string) error {
	for _, obj := range all {
		e.see(obj.(*storagev1.VolumeAttachment))
	}
	e.ready()
	return nil
}

// Resync has nothing to do.
func (e *eye) Resync() error { return nil }

// lister is what the clientset has for VolumeAttachments.
type lister interface {
	List(ctx context.Context, opts metav1.ListOptions) (*storagev1.VolumeAttachmentList, error)
}

func listAll(l lister) func(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) { return l.List(ctx, opts) }
}
