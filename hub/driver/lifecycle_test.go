package driver

import (
	"context"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const routedDriver = "routed.example.com"

// routed returns the work for a driver with an open route, whose cluster nobody watches.
func routed(t testing.TB) *lifecycle {
	t.Helper()
	return managerOf(t, registry.Driver{Name: routedDriver, Settings: registry.DefaultSettings()}, 0).newLifecycle(lease.Always(), func(err error) { t.Error(err) })
}

// connectTo has a driver's latest session be another one, that cannot be used yet.
func (d *lifecycle) connectTo(s Session) {
	d.driver.update(func(known *state) { known.session = newLiveSession(s, d.driver.Redactor) })
}

// publishing is a session of a driver that attaches.
type publishing struct{ Session }

func (publishing) Info() csiclient.Info {
	return csiclient.Info{Capabilities: csiclient.Capabilities{PublishUnpublish: true}}
}

func (publishing) Ended() context.Context { return context.Background() }

func routedAttachment(edits ...func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
	volume := "pv"
	va := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "va", UID: "uid-1", ResourceVersion: "10"},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: routedDriver, NodeName: "node",
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
	for _, edit := range edits {
		edit(va)
	}
	return va
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestPanicWhileADriverIsTakenUpOrLetGoEndsItsRunAlone(t *testing.T) {
	d := routed(t)
	d.connectTo(publishing{})
	d.driver.update(func(s *state) { s.up, s.leader, s.role.mode = true, d, registry.ModeActive })
	d.driver.Logger = logr.Logger(funcr.New(func(_, args string) {
		if strings.Contains(args, "calls in flight may end") {
			panic("odd line")
		}
	}, funcr.Options{}))
	var err error
	d.fail = func(panicked error) { err = panicked }
	ctx, end := context.WithCancel(t.Context())
	end()
	d.run(ctx, lease.Always())
	if err == nil || !strings.Contains(err.Error(), "odd line") {
		t.Errorf("the run ended with %v, want the panic", err)
	}
}
