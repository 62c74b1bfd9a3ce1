package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// tryTimeout bounds one try of Insist, tryAgain is the time from one to the next.
	tryTimeout = 5 * time.Second
	tryAgain   = 100 * time.Millisecond
	// watchLag is how long a watch may be late before the API server is asked.
	watchLag = 300 * time.Millisecond
)

// Insist repeats an act until it succeeds, ctx ends, or what it asks for is wrong: the API
// server may be away for a while. what says for the error what was tried.
func Insist(ctx context.Context, what string, act func(context.Context) error) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, tryTimeout)
		err := act(bounded)
		cancel()
		if err == nil {
			return nil
		}
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-time.After(tryAgain):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// Ensure makes an object unless it exists, as Insist does.
func (c *Cluster) Ensure(ctx context.Context, o Object) error {
	return Insist(ctx, "create "+o.String(), func(ctx context.Context) error {
		if err := o.requests(c.client).create(ctx); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
}

// Attach makes a VolumeAttachment, as Insist does. None of that name may be there.
func (c *Cluster) Attach(ctx context.Context, want VolumeAttachment) (va *storagev1.VolumeAttachment, err error) {
	client := c.client.StorageV1().VolumeAttachments()
	err = Insist(ctx, "create "+want.String(), func(ctx context.Context) (err error) {
		va, err = client.Create(ctx, want.Build(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // by a try that seemed to have failed
			va, err = client.Get(ctx, want.Name, metav1.GetOptions{})
		}
		return err
	})
	return va, err
}

// Detach deletes a VolumeAttachment, as Insist does, and blocks until the API server says that it
// is gone. The watcher wakes it; it may not have shown the VolumeAttachment yet.
func (c *Cluster) Detach(ctx context.Context, watcher *Watcher[*storagev1.VolumeAttachment], name string, uid types.UID) error {
	client := c.client.StorageV1().VolumeAttachments()
	err := Insist(ctx, "delete VolumeAttachment "+name, func(ctx context.Context) error {
		err := client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
	seen := func(now *storagev1.VolumeAttachment, exists bool) bool { return exists && now.UID == uid }
	gone := func(now *storagev1.VolumeAttachment, exists bool) bool { return !seen(now, exists) }
	for there := true; there && err == nil; {
		// After the API server was away a watch may be late for as long as a minute. An error of the
		// wait only means that the API server is asked.
		bounded, cancel := context.WithTimeout(ctx, tryTimeout)
		_ = watcher.WaitForOne(bounded, "gone", name, gone)
		cancel()
		err = Insist(ctx, "get VolumeAttachment "+name, func(ctx context.Context) error {
			now, err := client.Get(ctx, name, metav1.GetOptions{})
			if there = err == nil && now.UID == uid; apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if there {
			lag, cancel := context.WithTimeout(ctx, watchLag)
			_ = watcher.WaitForOne(lag, "seen", name, seen)
			cancel()
		}
	}
	return err
}
