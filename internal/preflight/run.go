package preflight

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// maxExamined is how many drivers are connected to at once; maxAsked is how many of them the API server is asked about.
	maxExamined, maxAsked = 32, 8
	// driverTimeout bounds the examination of one endpoint.
	driverTimeout = 30 * time.Second
	// maxSecrets is how many Secrets of a driver the API server is asked about: a StorageClass can give each volume its own.
	maxSecrets = 200
)

// Kube is the part of the Kubernetes API that is read; every kubernetes.Interface is one.
type Kube interface {
	rights.Kube
	CoreV1() corev1client.CoreV1Interface
	StorageV1() storagev1client.StorageV1Interface
}

// Options are what to check.
type Options struct {
	Kube      Kube
	Drivers   []registry.Driver
	Namespace string   // of the hub, and of leases for which a driver's entry names none
	Discovery bool     // the configuration takes drivers from CSIDriver objects
	Warnings  []string // of the configuration
	Notes     []string // of the Report
}

// Run checks all drivers side by side. It blocks until all have answered or used up their time, or ctx ends. What was not
// answered by then has failed.
func Run(ctx context.Context, o Options) Report {
	read := newCluster(o.Drivers)
	endpoints, accounts := make([]endpointFacts, len(o.Drivers)), make([]accountFacts, len(o.Drivers))
	var hub []Check
	var all sync.WaitGroup
	all.Go(func() { examineAll(ctx, o.Drivers, endpoints) })
	all.Go(func() {
		read.read(ctx, o.Kube)
		hub = o.checkHub(ctx, read)
		o.askAll(ctx, read, accounts)
	})
	all.Wait()
	now := time.Now()
	drivers := make([]Driver, len(o.Drivers))
	for i, d := range o.Drivers {
		drivers[i] = decide(d, endpoints[i], accounts[i], read, now)
	}
	return newReport(hub, drivers, o.Notes, now)
}

// AskSocket asks the driver on a socket for its name and capabilities, without a cluster. It blocks as Run does.
func AskSocket(ctx context.Context, e registry.Endpoint) Report {
	d := registry.Driver{Endpoint: e}
	facts := make([]endpointFacts, 1)
	examineAll(ctx, []registry.Driver{d}, facts)
	now := time.Now()
	driver := newDriver(d, facts[0])
	driver.Name, driver.Checks = facts[0].Info.Name, endpointChecks(d, facts[0], usage{}, now)
	return newReport(nil, []Driver{driver}, nil, now)
}

func examineAll(ctx context.Context, drivers []registry.Driver, facts []endpointFacts) {
	var group errgroup.Group
	group.SetLimit(maxExamined)
	for i, d := range drivers {
		group.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, driverTimeout)
			defer cancel()
			facts[i] = examine(limited, d)
			return nil
		})
	}
	_ = group.Wait() // none fails: errors are facts
}

// checkHub checks what does not depend on a driver.
func (o Options) checkHub(ctx context.Context, read *cluster) []Check {
	var checks []Check
	for _, w := range o.Warnings {
		checks = append(checks, warning("configuration", w, ""))
	}
	if len(checks) == 0 {
		checks = append(checks, ok("configuration", "no mistakes and no warnings"))
	}
	api := ok("cluster", "CSIDrivers, VolumeAttachments, CSINodes and PersistentVolumes can be listed")
	if read.err != nil {
		api = failed("cluster", read.err.Error(), "Check the API server, the NetworkPolicies on the way, and the rights below.")
	}
	missing, err := rights.Missing(ctx, o.Kube.AuthorizationV1(), rights.Needed(rights.Features{ReplicaNamespace: o.Namespace, Discovery: o.Discovery}))
	return append(checks, api, checkRights(missing, err, "this account has all rights that do not depend on a driver"))
}

// askAll asks the API server about the lease and the rights of each driver.
func (o Options) askAll(ctx context.Context, read *cluster, facts []accountFacts) {
	var group errgroup.Group
	group.SetLimit(maxAsked)
	for i, d := range o.Drivers {
		group.Go(func() error {
			facts[i] = o.ask(ctx, d, read)
			return nil
		})
	}
	_ = group.Wait() // none fails: errors are facts
}

func (o Options) ask(ctx context.Context, d registry.Driver, read *cluster) accountFacts {
	written := d.LeaseOf()
	l := rights.Lease{Namespace: cmp.Or(written.Namespace, o.Namespace), Name: written.Name}
	features := rights.Features{Leases: []rights.Lease{l}, ReplicaNamespace: o.Namespace}
	f := accountFacts{leaseFacts: leaseFacts{lease: l}, elsewhere: l.Namespace != o.Namespace}
	if f.object, f.err = o.Kube.CoordinationV1().Leases(l.Namespace).Get(ctx, l.Name, metav1.GetOptions{}); f.err != nil {
		f.object = nil
	}
	if f.elsewhere && (apierrors.IsNotFound(f.err) || apierrors.IsForbidden(f.err)) {
		_, f.namespaceErr = o.Kube.CoreV1().Namespaces().Get(ctx, l.Namespace, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(f.err) {
		var absent []rights.Lease
		absent, f.err = rights.AbsentLeases(ctx, o.Kube, features)
		f.mayCreate = len(absent) == 0
	}
	if f.elsewhere {
		ofLease := slices.DeleteFunc(rights.Needed(features), func(r rights.Right) bool { return r.Name != l.Name })
		f.missing, f.rightsErr = rights.Missing(ctx, o.Kube.AuthorizationV1(), ofLease)
	}
	f.askSecrets(ctx, o.Kube, read.drivers[d.Name].secrets)
	return f
}

// askSecrets asks whether this process may read Secrets. It reads none.
func (f *accountFacts) askSecrets(ctx context.Context, kube Kube, secrets map[corev1.SecretReference]bool) {
	var needed []rights.Right
	for s := range secrets {
		needed = append(needed, rights.Right{Verb: "get", Resource: "secrets", Namespace: s.Namespace, Name: s.Name})
	}
	slices.SortFunc(needed, func(a, b rights.Right) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	f.secrets, f.notAsked = len(needed), max(0, len(needed)-maxSecrets)
	var denied []rights.Right
	denied, f.secretError = rights.Missing(ctx, kube.AuthorizationV1(), needed[:len(needed)-f.notAsked])
	for _, r := range denied {
		f.denied = append(f.denied, corev1.SecretReference{Namespace: r.Namespace, Name: r.Name})
	}
}

// decide makes the checks of one driver.
func decide(d registry.Driver, e endpointFacts, a accountFacts, read *cluster, now time.Time) Driver {
	u := *read.drivers[d.Name]
	driver := newDriver(d, e)
	driver.Name = d.Name
	granted := "this account has the rights on the lease"
	if !a.elsewhere {
		granted = "the lease is in the hub's namespace, whose rights are above"
	}
	driver.Checks = append(endpointChecks(d, e, u, now), checkLease(d, a.leaseFacts, u, now), checkRights(a.missing, a.rightsErr, granted))
	if read.err != nil {
		driver.Checks = append(driver.Checks, skipped("secrets", "hub: cluster"), skipped("node IDs", "hub: cluster"))
	} else {
		driver.Checks = append(driver.Checks, checkSecrets(a), checkNodes(u))
	}
	return driver
}

func newDriver(d registry.Driver, e endpointFacts) Driver {
	return Driver{Endpoint: string(d.Endpoint), Mode: string(d.Mode), Source: d.Source, Version: e.Info.Version, Capabilities: e.Info.Capabilities.Names()}
}
