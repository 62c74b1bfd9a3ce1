package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestAServerThatFailsStopsTheHubInOrder(t *testing.T) {
	broken := errors.New("accept: too many open files")
	var last bool // the other one ran for as long as there was work
	worked := false
	err := runWithServices(t.Context(), []func(context.Context) error{
		func(context.Context) error { return broken },
		func(ctx context.Context) error { <-ctx.Done(); last = worked; return nil },
	}, func(ctx context.Context) error {
		<-ctx.Done()
		worked = true
		return nil
	})
	if !errors.Is(err, broken) || !last {
		t.Errorf("got %v, and the leases ended after the work: %v", err, last)
	}
}

func TestWhatIsNeededRunsUntilTheWorkHasEnded(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	worked := false
	err := runWithServices(ctx, []func(context.Context) error{func(ctx context.Context) error {
		<-ctx.Done()
		if !worked {
			t.Error("it ended before the work")
		}
		return nil
	}}, func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		worked = true
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestRightsAreAskedForByTheLeasesOfTheDrivers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "drivers.yaml")
	if err := os.WriteFile(path, []byte(`apiVersion: attach-hub/v1alpha1
kind: DriverConfig
drivers:
  - {name: a.example.com, endpoint: "unix:///csi/a", lease: {namespace: storage}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := registry.NewFile(path, registry.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	s := hubSettings{}
	s.leases.Enabled, s.leases.Namespace = true, "hub"
	want := rights.Features{Leases: []rights.Lease{{Namespace: "storage", Name: "external-attacher-leader-a-example-com"}}, ReplicaNamespace: "hub"}
	if diff := cmp.Diff(want, featuresOf(s, source.Config())); diff != "" {
		t.Errorf("in the place of all sidecars (-want +got):\n%s", diff)
	}
	s.csiAddress = "unix:///csi/socket"
	want = rights.Features{Leases: []rights.Lease{{Namespace: "hub"}}}
	if diff := cmp.Diff(want, featuresOf(s, source.Config())); diff != "" {
		t.Errorf("in the place of one sidecar (-want +got):\n%s", diff)
	}
}
