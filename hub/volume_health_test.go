package hub_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-attach-hub/csi-attach-hub/hub"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// VolumeHealth asks the backend, as csiclient does.
func (s *backendSession) VolumeHealth(ctx context.Context, handle string) ([]csiclient.VolumeHealth, error) {
	answer, err := s.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
	var problems []csiclient.VolumeHealth
	for _, p := range answer.GetVolumeHealth().GetHealthStatuses() {
		problems = append(problems, csiclient.VolumeHealth{Status: p.GetStatus().String(), Reason: p.GetReason(), Message: p.GetMessage()})
	}
	return problems, err
}

func (*memorySession) VolumeHealth(context.Context, string) ([]csiclient.VolumeHealth, error) {
	return nil, errors.ErrUnsupported
}

// asking counts the questions about volume health that a driver gets.
type asking struct {
	*backendSession
	asked, now, most *atomic.Int32
}

func (s asking) VolumeHealth(ctx context.Context, handle string) ([]csiclient.VolumeHealth, error) {
	s.asked.Add(1)
	if now := s.now.Add(1); now > s.most.Load() {
		s.most.Store(now)
	}
	defer s.now.Add(-1)
	return s.backendSession.VolumeHealth(ctx, handle)
}

// asksForHealth gives the driver GET_VOLUME_HEALTH. It counts its questions in all, and at most at once.
func (v *virtual) asksForHealth() (asked, most *atomic.Int32) {
	var now atomic.Int32
	asked, most = &atomic.Int32{}, &atomic.Int32{}
	v.turn(fakecsi.Knobs{Capabilities: append(fakecsi.DefaultCapabilities(), fakecsi.GetVolumeHealth)})
	v.options.Connect = func(context.Context, registry.Driver) (hub.Session, error) {
		s := newBackendSession(v.backend)
		s.info.Capabilities.GetVolumeHealth = true
		return asking{s, asked, &now, most}, nil
	}
	return asked, most
}

func TestADriverIsAskedForTheHealthOfAVolumeOnceInTenSeconds(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		asked, most := v.asksForHealth()
		va := v.attachedWithPassword()
		v.turn(fakecsi.Knobs{VolumeHealth: map[string][]fakecsi.Health{"v": {
			{Status: "INACCESSIBLE", Reason: "PathDown", Message: "login with " + password + " failed\x1b[31m" + strings.Repeat("x", 10000)}}}})
		for range 2 {
			var questions sync.WaitGroup
			for range 50 {
				questions.Go(func() {
					got, err := v.hub.VolumeHealth(v.t.Context(), va.Name)
					if err != nil || len(got.Problems) != 1 || got.Problems[0].Status != "INACCESSIBLE" || got.Problems[0].Reason != "PathDown" {
						t.Errorf("got %+v, %v", got, err)
						return
					}
					checkShown(t, "the message", got.Problems[0].Message, csiclient.MaxText)
					if !strings.Contains(got.Problems[0].Message, "login with [secret] failed") {
						t.Errorf("the message is %.80q", got.Problems[0].Message)
					}
				})
			}
			questions.Wait()
			v.pass(10 * time.Second)
		}
		if asked.Load() != 2 || most.Load() != 1 {
			t.Errorf("the driver got %d questions, %d at once, want 2 and 1", asked.Load(), most.Load())
		}
	})
}

func TestManyQuestionsAboutHealthDoNotFloodADriver(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		asked, most := v.asksForHealth()
		v.register("n", "id-n")
		for i := range 150 {
			name := fmt.Sprintf("v%d", i)
			v.volume(name)
			v.create(v.attachment(name, "n"))
		}
		v.start()
		v.pass(time.Minute)
		var questions sync.WaitGroup
		var refused atomic.Int32
		for i := range 150 {
			questions.Go(func() {
				if _, err := v.hub.VolumeHealth(v.t.Context(), fmt.Sprintf("v%d-n", i)); err != nil {
					refused.Add(1)
				}
			})
		}
		questions.Wait()
		if asked.Load() != 100 || most.Load() != 1 || refused.Load() != 50 {
			t.Errorf("the driver got %d questions, %d at once, and %d were refused, want 100, 1 and 50", asked.Load(), most.Load(), refused.Load())
		}
	})
}

func TestClientsThatLeaveDoNotFloodADriverWithQuestionsAboutHealth(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		asked, most := v.asksForHealth()
		va := v.attachedWithPassword()
		v.turn(fakecsi.Knobs{Latency: map[fakecsi.Method]fakecsi.Latency{fakecsi.ControllerGetVolumeHealth: {Base: 10 * time.Millisecond}}})
		for range 1000 {
			ctx, leave := context.WithCancel(v.t.Context())
			time.AfterFunc(time.Millisecond, leave)
			_, _ = v.hub.VolumeHealth(ctx, va.Name)
			leave()
		}
		if asked.Load() != 1 || most.Load() != 1 {
			t.Errorf("the driver got %d questions, %d at once, want 1", asked.Load(), most.Load())
		}
	})
}

func TestADriverThatHangsHoldsQuestionsAboutHealthForSecondsOnly(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		asked, most := v.asksForHealth()
		va := v.attachedWithPassword()
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerGetVolumeHealth}}})
		begun := time.Now()
		var questions sync.WaitGroup
		for range 10 {
			questions.Go(func() {
				if _, err := v.hub.VolumeHealth(v.t.Context(), va.Name); err == nil {
					t.Error("a driver that hangs has answered")
				}
			})
		}
		questions.Wait()
		if took := time.Since(begun); took > 5*time.Second || asked.Load() != 1 || most.Load() != 1 {
			t.Errorf("it took %s, with %d questions", took, asked.Load())
		}
	})
}

func TestAVolumeWhoseHealthCannotBeAskedForSaysWhy(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		va := v.attachedWithPassword() // the driver has no GET_VOLUME_HEALTH
		if _, err := v.hub.VolumeHealth(v.t.Context(), va.Name); err == nil || !strings.Contains(err.Error(), "no GET_VOLUME_HEALTH") {
			t.Errorf("got %v", err)
		}
		if _, err := v.hub.VolumeHealth(v.t.Context(), "none"); !errors.Is(err, status.ErrNoAttachment) {
			t.Errorf("got %v", err)
		}
		v.create(testbed.VolumeAttachment{Name: "other", Driver: "other.example.com", Node: "n", PersistentVolume: "v"})
		v.pass(time.Second)
		if _, err := v.hub.VolumeHealth(v.t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "driver other.example.com is not served here") {
			t.Errorf("got %v", err)
		}
	})
}
