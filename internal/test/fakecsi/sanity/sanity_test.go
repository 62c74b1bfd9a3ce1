package sanity_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// sanityNode is the node that the suite's controller tests publish to: they ask
// a Node service for its id, and clean up through it.
type sanityNode struct {
	csi.UnimplementedNodeServer
	id string
	// maxVolumes is what the suite publishes before it expects a refusal.
	maxVolumes int64
}

func (n *sanityNode) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.id, MaxVolumesPerNode: n.maxVolumes}, nil
}

func (n *sanityNode) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (n *sanityNode) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// TestSanitySuitePasses runs csi-test's suite for the Identity and Controller
// services, with every capability that a Backend can have.
func TestSanitySuitePasses(t *testing.T) {
	if count := flag.Lookup("test.count"); count != nil && count.Value.String() != "1" {
		t.Skip("ginkgo, which the suite is written in, refuses to run with -count")
	}
	const limit = 3
	all := append(fakecsi.DefaultCapabilities(), fakecsi.CreateDeleteVolume)
	b, err := fakecsi.New(fakecsi.Options{Name: "fake.csi.example.com", Capabilities: all, StrictVolumes: true, Nodes: []string{"n1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Set(fakecsi.Knobs{MaxVolumesPerNode: new(limit)}); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "fc") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := fakecsi.NewServer(fakecsi.ServerOptions{
		Backend:  b,
		Endpoint: "unix://" + filepath.Join(dir, "csi.sock"),
		Register: func(r grpc.ServiceRegistrar) {
			csi.RegisterNodeServer(r, &sanityNode{id: "n1", maxVolumes: limit})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Crash)

	config := sanity.NewTestConfig()
	config.Address = s.Endpoint()
	config.TargetPath = filepath.Join(dir, "target")
	config.StagingPath = filepath.Join(dir, "staging")
	config.TestNodeVolumeAttachLimit = true
	suite := sanity.GinkgoTest(&config)
	t.Cleanup(suite.Finalize)
	gomega.RegisterFailHandler(ginkgo.Fail)
	options, reporter := ginkgo.GinkgoConfiguration()
	options.SkipStrings = []string{"Node Service"} // a Backend has none
	reporter.Succinct, reporter.NoColor = true, true
	ginkgo.RunSpecs(t, "CSI sanity", options, reporter)

	books := b.Books()
	if len(books.Attached) != 0 || books.Volumes != 0 {
		t.Errorf("the suite left %d volumes, attached %v", books.Volumes, books.Attached)
	}
	if books.Methods[fakecsi.ControllerPublishVolume].Changed == 0 {
		t.Error("the suite published nothing")
	}
}
