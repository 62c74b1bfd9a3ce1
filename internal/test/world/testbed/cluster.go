package testbed

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// inParallel is how many requests Create and Delete have in flight. More
// makes nothing faster on a small machine.
const inParallel = 16

// Object is one Kubernetes object to be made: Node, CSINode, CSIDriver,
// PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment or Secret.
type Object interface {
	requests(client kubernetes.Interface) requests
	// String says kind and name, for errors.
	String() string
}

// requests make and delete one object.
type requests struct{ create, remove func(context.Context) error }

// kindClient is what the clientset has for each kind.
type kindClient[T any] interface {
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

func requestsFor[T any](client kindClient[T], object T, name string) requests {
	return requests{
		create: func(ctx context.Context) error {
			_, err := client.Create(ctx, object, metav1.CreateOptions{})
			return err
		},
		remove: func(ctx context.Context) error {
			// A Pod gets no grace: no kubelet would ever confirm its end.
			return client.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		},
	}
}

// Cluster makes and deletes objects, many at once.
type Cluster struct{ client kubernetes.Interface }

// NewCluster uses the client, which should have no rate limit.
func NewCluster(client kubernetes.Interface) *Cluster {
	return &Cluster{client: client}
}

// Client is the one that the cluster was made with.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Create makes the objects, in no particular order: what must exist before
// something else goes into an earlier call. It blocks until all are made, or
// one could not be; then it returns that error, and some may not be made.
func (c *Cluster) Create(ctx context.Context, objects ...Object) error {
	return c.each(ctx, "create", objects, func(ctx context.Context, r requests) error { return r.create(ctx) })
}

// Delete deletes the objects, pods without a grace period. It does not wait
// until they are gone: finalizers may hold them. It is no error when an object
// does not exist.
func (c *Cluster) Delete(ctx context.Context, objects ...Object) error {
	return c.each(ctx, "delete", objects, func(ctx context.Context, r requests) error {
		if err := r.remove(ctx); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

func (c *Cluster) each(ctx context.Context, verb string, objects []Object, act func(context.Context, requests) error) error {
	return Each(ctx, inParallel, objects, func(ctx context.Context, o Object) error {
		if err := act(ctx, o.requests(c.client)); err != nil {
			return fmt.Errorf("%s %s: %w", verb, o, err)
		}
		return nil
	})
}

// BindClaim makes a claim unless it exists, and binds it to its PersistentVolume, as the persistentvolume-binder-controller does.
func (c *Cluster) BindClaim(ctx context.Context, o PersistentVolumeClaim) error {
	claims := c.client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault)
	claim, err := claims.Create(ctx, o.Build(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bind %s: %w", o, err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"claimRef":{"uid":%q}}}`, claim.UID)
	_, err = c.client.CoreV1().PersistentVolumes().Patch(ctx, o.PersistentVolume, types.MergePatchType, patch, metav1.PatchOptions{})
	claim.Status.Phase, claim.Status.AccessModes, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.AccessModes, claim.Spec.Resources.Requests
	_, status := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return errors.Join(err, status)
}

// Each does something for each item, so many at once and in about their order. It blocks until
// all is done, or until something has failed, which is its error.
func Each[T any](ctx context.Context, parallel int, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, item := range items {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx) // where another item failed, its error is the one returned
			}
			return do(ctx, item)
		})
	}
	return group.Wait()
}
