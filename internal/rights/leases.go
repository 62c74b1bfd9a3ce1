package rights

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Kube is the part of the Kubernetes API that is asked; every kubernetes.Interface is one.
type Kube interface {
	AuthorizationV1() authorizationv1client.AuthorizationV1Interface
	CoordinationV1() coordinationv1client.CoordinationV1Interface
}

// AbsentLeases returns the leases of drivers that do not exist and that this process may not
// create, sorted. The right to create leases is needed for no other lease: mostly the driver's
// csi-attacher has made it. It blocks until all requests are answered or one has failed.
func AbsentLeases(ctx context.Context, kube Kube, f Features) ([]Lease, error) {
	var absent []Lease
	for _, l := range f.leasesElsewhere() {
		if l.Name == "" {
			continue // Needed has the right to create leases
		}
		_, err := kube.CoordinationV1().Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{})
		switch {
		case err == nil, apierrors.IsForbidden(err): // Missing reports a lease that may not be read
			continue
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("ask whether lease %s exists: %w", l, err)
		}
		create := Right{Verb: "create", Group: coordination, Resource: "leases", Namespace: l.Namespace}
		allowed, err := ask(ctx, kube.AuthorizationV1(), create)
		if err != nil {
			return nil, err
		}
		if !allowed {
			absent = append(absent, l)
		}
	}
	return absent, nil
}
