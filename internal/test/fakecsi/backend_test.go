package fakecsi

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	rwo = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	rwx = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

func newBackend(t *testing.T, o Options) *Backend {
	t.Helper()
	if o.Name == "" {
		o.Name = "fake.csi.example.com"
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func turn(t *testing.T, b *Backend, k Knobs) {
	t.Helper()
	if err := b.Set(k); err != nil {
		t.Fatal(err)
	}
}

func publishRequest(volume, node string, mode csi.VolumeCapability_AccessMode_Mode) *csi.ControllerPublishVolumeRequest {
	return &csi.ControllerPublishVolumeRequest{
		VolumeId: volume,
		NodeId:   node,
		VolumeCapability: &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		},
	}
}

func publish(ctx context.Context, b *Backend, volume, node string, mode csi.VolumeCapability_AccessMode_Mode) codes.Code {
	_, err := b.ControllerPublishVolume(ctx, publishRequest(volume, node, mode))
	return status.Code(err)
}

func unpublish(ctx context.Context, b *Backend, volume, node string) codes.Code {
	_, err := b.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node})
	return status.Code(err)
}

// attached is the books' volume → nodes without the how.
func attached(b *Backend) map[string][]string {
	out := map[string][]string{}
	for v, nodes := range b.Books().Attached {
		for _, n := range []string{"n1", "n2", "n3"} {
			if _, ok := nodes[n]; ok {
				out[v] = append(out[v], n)
			}
		}
	}
	return out
}

func TestPublishAndUnpublishFollowTheSpecification(t *testing.T) {
	type step struct {
		do   string // publish or unpublish
		vol  string
		node string
		mode csi.VolumeCapability_AccessMode_Mode
		edit func(*csi.ControllerPublishVolumeRequest)
		want codes.Code
	}
	readonly := func(r *csi.ControllerPublishVolumeRequest) { r.Readonly = true }
	tests := []struct {
		name      string
		options   Options
		knobs     Knobs
		steps     []step
		attached  map[string][]string
		unchanged int // of both methods
	}{
		{
			name:     "a publish attaches",
			steps:    []step{{do: "publish", vol: "v", node: "n1", mode: rwo}},
			attached: map[string][]string{"v": {"n1"}},
		},
		{
			name: "the same publish again changes nothing",
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwo},
				{do: "publish", vol: "v", node: "n1", mode: rwo},
			},
			attached: map[string][]string{"v": {"n1"}}, unchanged: 1,
		},
		{
			name: "a publish in another way is refused",
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwo},
				{do: "publish", vol: "v", node: "n1", mode: rwo, edit: readonly, want: codes.AlreadyExists},
				{do: "publish", vol: "v", node: "n1", mode: rwx, want: codes.AlreadyExists},
			},
			attached: map[string][]string{"v": {"n1"}},
		},
		{
			name: "a single-node volume goes to no second node",
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwo},
				{do: "publish", vol: "v", node: "n2", mode: rwo, want: codes.FailedPrecondition},
				{do: "publish", vol: "v", node: "n2", mode: rwx, want: codes.FailedPrecondition},
			},
			attached: map[string][]string{"v": {"n1"}},
		},
		{
			name: "a multi-node volume goes to several nodes, and to none of them as single-node",
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwx},
				{do: "publish", vol: "v", node: "n2", mode: rwx},
				{do: "publish", vol: "v", node: "n3", mode: rwo, want: codes.FailedPrecondition},
			},
			attached: map[string][]string{"v": {"n1", "n2"}},
		},
		{
			name: "unpublish detaches from the node that it names",
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwx},
				{do: "publish", vol: "v", node: "n2", mode: rwx},
				{do: "unpublish", vol: "v", node: "n1"},
			},
			attached: map[string][]string{"v": {"n2"}},
		},
		{
			name: "unpublish without a node detaches from all",
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwx},
				{do: "publish", vol: "v", node: "n2", mode: rwx},
				{do: "unpublish", vol: "v"},
			},
		},
		{
			name:      "unpublish of what is not published is fine and changes nothing",
			steps:     []step{{do: "unpublish", vol: "v", node: "n1"}},
			unchanged: 1,
		},
		{
			name:  "a node that is full takes no more, but what it has is fine",
			knobs: Knobs{MaxVolumesPerNode: new(1)},
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwo},
				{do: "publish", vol: "w", node: "n1", mode: rwo, want: codes.ResourceExhausted},
				{do: "publish", vol: "v", node: "n1", mode: rwo},
				{do: "publish", vol: "w", node: "n2", mode: rwo},
				{do: "unpublish", vol: "v", node: "n1"},
				{do: "publish", vol: "x", node: "n1", mode: rwo},
			},
			attached: map[string][]string{"w": {"n2"}, "x": {"n1"}}, unchanged: 1,
		},
		{
			name:    "what is not announced cannot be used",
			options: Options{Capabilities: []Capability{ControllerService, PublishUnpublishVolume}},
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwo, edit: readonly, want: codes.InvalidArgument},
				{do: "publish", vol: "v", node: "n1", mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, want: codes.InvalidArgument},
			},
		},
		{
			name:    "a driver without publish has none",
			options: Options{Capabilities: []Capability{ControllerService}},
			steps: []step{
				{do: "publish", vol: "v", node: "n1", mode: rwo, want: codes.Unimplemented},
				{do: "unpublish", vol: "v", node: "n1", want: codes.Unimplemented},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBackend(t, tt.options)
			turn(t, b, tt.knobs)
			for i, s := range tt.steps {
				var got codes.Code
				if s.do == "unpublish" {
					got = unpublish(t.Context(), b, s.vol, s.node)
				} else {
					req := publishRequest(s.vol, s.node, s.mode)
					if s.edit != nil {
						s.edit(req)
					}
					_, err := b.ControllerPublishVolume(t.Context(), req)
					got = status.Code(err)
				}
				if got != s.want {
					t.Errorf("step %d: %s %s %s: got %s, want %s", i, s.do, s.vol, s.node, got, s.want)
				}
			}
			want := tt.attached
			if want == nil {
				want = map[string][]string{}
			}
			if diff := cmp.Diff(want, attached(b)); diff != "" {
				t.Errorf("attached (-want +got):\n%s", diff)
			}
			books := b.Books()
			if got := books.Methods[ControllerPublishVolume].Unchanged + books.Methods[ControllerUnpublishVolume].Unchanged; got != tt.unchanged {
				t.Errorf("calls that changed nothing: got %d, want %d", got, tt.unchanged)
			}
		})
	}
}
