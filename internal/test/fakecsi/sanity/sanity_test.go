package sanity_test

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// provisioner adds to a Backend what the suite needs for its tests of publishing: volumes that are made and deleted, and nodes and
// volumes that do not exist.
type provisioner struct {
	*fakecsi.Backend
	capacity map[string]int64 // of the volumes that exist
}

// ControllerGetCapabilities implements csi.ControllerServer.
func (p *provisioner) ControllerGetCapabilities(ctx context.Context, req *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp, err := p.Backend.ControllerGetCapabilities(ctx, req)
	resp.Capabilities = append(resp.GetCapabilities(), &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
		Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME},
	}})
	return resp, err
}

// ControllerPublishVolume implements csi.ControllerServer.
func (p *provisioner) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	complete := req.GetVolumeId() != "" && req.GetNodeId() != "" && req.GetVolumeCapability() != nil
	if complete && (p.capacity[req.GetVolumeId()] == 0 || req.GetNodeId() != "n1") {
		return nil, status.Error(codes.NotFound, "the volume or the node does not exist")
	}
	return p.Backend.ControllerPublishVolume(ctx, req)
}

// CreateVolume implements csi.ControllerServer.
func (p *provisioner) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "name or capabilities are missing")
	}
	id, want := fmt.Sprintf("%x", sha256.Sum256([]byte(req.GetName()))), max(req.GetCapacityRange().GetRequiredBytes(), 1)
	if have := p.capacity[id]; have != 0 && have < want {
		return nil, status.Error(codes.AlreadyExists, "the volume exists and is smaller")
	} else if have == 0 {
		p.capacity[id] = want
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: p.capacity[id]}}, p.Set(fakecsi.Knobs{GainVolumes: []string{id}})
}

// DeleteVolume implements csi.ControllerServer.
func (p *provisioner) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is missing")
	}
	delete(p.capacity, req.GetVolumeId())
	return &csi.DeleteVolumeResponse{}, p.Set(fakecsi.Knobs{LoseVolumes: []string{req.GetVolumeId()}})
}

// ValidateVolumeCapabilities implements csi.ControllerServer.
func (p *provisioner) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_id or capabilities are missing")
	}
	if p.capacity[req.GetVolumeId()] == 0 {
		return nil, status.Error(codes.NotFound, "the volume does not exist")
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: req.GetVolumeCapabilities()}}, nil
}

// TestSanitySuitePasses runs csi-test's suite for the Identity and Controller
// services, with every capability that a Backend can have. The suite makes one call at a time.
func TestSanitySuitePasses(t *testing.T) {
	if count := flag.Lookup("test.count"); count != nil && count.Value.String() != "1" {
		t.Skip("ginkgo, which the suite is written in, refuses to run with -count")
	}
	const limit = 3
	b, err := fakecsi.New(fakecsi.Options{Name: "fake.csi.example.com"})
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
	listener, err := net.Listen("unix", filepath.Join(dir, "csi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	p := &provisioner{b, map[string]int64{}}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, p)
	csi.RegisterControllerServer(server, p)
	csi.RegisterNodeServer(server, &sanityNode{id: "n1", maxVolumes: limit})
	go func() { _ = server.Serve(listener) }() // until it is stopped
	t.Cleanup(server.Stop)

	config := sanity.NewTestConfig()
	config.Address = "unix://" + listener.Addr().String()
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
	if len(books.Attached) != 0 || len(p.capacity) != 0 {
		t.Errorf("the suite left %d volumes, attached %v", len(p.capacity), books.Attached)
	}
	if books.Methods[fakecsi.ControllerPublishVolume].Changed == 0 {
		t.Error("the suite published nothing")
	}
}
