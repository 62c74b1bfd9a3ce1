package testbed

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
)

// defaultParallel is how many requests Create and Delete have in flight. More
// makes nothing faster on a small machine.
const defaultParallel = 16

// Object is one Kubernetes object to be made: Node, CSINode, CSIDriver,
// PersistentVolume, PersistentVolumeClaim, Pod, VolumeAttachment or Secret.
type Object interface {
	create(ctx context.Context, client kubernetes.Interface) error
	remove(ctx context.Context, client kubernetes.Interface) error
	// String says kind and name, for errors.
	String() string
}

// Cluster makes and deletes objects, many at once.
type Cluster struct {
	client   kubernetes.Interface
	parallel int
}

// NewCluster uses the client, which should have no rate limit.
func NewCluster(client kubernetes.Interface) *Cluster {
	return &Cluster{client: client, parallel: defaultParallel}
}

// Client is the one that the cluster was made with.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Create makes the objects, in no particular order: what must exist before
// something else goes into an earlier call. It blocks until all are made, or
// one could not be; then it returns that error, and some may not be made.
func (c *Cluster) Create(ctx context.Context, objects ...Object) error {
	return c.each(ctx, "create", objects, Object.create)
}

// Delete deletes the objects, pods without a grace period. It does not wait
// until they are gone: finalizers may hold them. It is no error when an object
// does not exist.
func (c *Cluster) Delete(ctx context.Context, objects ...Object) error {
	return c.each(ctx, "delete", objects, func(o Object, ctx context.Context, client kubernetes.Interface) error {
		if err := o.remove(ctx, client); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	})
}

func (c *Cluster) each(ctx context.Context, verb string, objects []Object, act func(Object, context.Context, kubernetes.Interface) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.parallel)
	for _, o := range objects {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err // another one failed: its error is the one returned
			}
			if err := act(o, ctx, c.client); err != nil {
				return fmt.Errorf("%s %s: %w", verb, o, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Objects makes a list for Create out of objects of one kind, or by a function:
//
//	cluster.Create(ctx, testbed.Objects(100, func(i int) testbed.Object { return ... })...)
func Objects(n int, make func(i int) Object) []Object {
	var objects []Object
	for i := range n {
		objects = append(objects, make(i))
	}
	return objects
}
