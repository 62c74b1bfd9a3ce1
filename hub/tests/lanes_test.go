package tests

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	hubdriver "github.com/csi-attach-hub/csi-attach-hub/hub/driver"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// askFor makes some volumes, and asks for them on node n.
func (v *virtual) askFor(prefix string, n int) []testbed.Object {
	v.t.Helper()
	var all []testbed.Object
	for i := range n {
		name := fmt.Sprint(prefix, i)
		v.volume(name)
		all = append(all, v.attachment(name, "n"))
	}
	v.create(all...)
	return all
}

// Rule: attaches and detaches each have half of the workers; what one side leaves idle is lent to short calls, all but one.
func TestAttachesThatHangLeaveWorkersToDetaches(t *testing.T) {
	for name, c := range map[string]struct{ warm, want int }{
		"no call has ended so far":    {0, 4},
		"the calls were short so far": {10, 7},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(v *virtual) {
				v.driver.Workers, v.driver.Timeout = 8, 24*time.Hour
				v.register("n", "id-n")
				stop := v.start()
				leaving := v.askFor("leaving", 10)
				v.pass(time.Minute)
				stop()
				v.start() // it remembers no call
				v.pass(time.Second)
				v.askFor("warm", c.warm)
				v.pass(time.Minute)
				v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
				v.askFor("hanging", 20)
				v.pass(time.Minute)
				if n := v.backend.Books().AttachInFlight.Now; n != c.want {
					t.Errorf("%d attaches in flight, want %d of 8 workers", n, c.want)
				}
				v.delete(leaving...)
				v.pass(time.Second)
				for _, va := range leaving {
					if name := va.(testbed.VolumeAttachment).Name; v.get(name) != nil {
						t.Errorf("%s is not detached", name)
					}
				}
				v.turn(fakecsi.Knobs{ReleaseAll: true})
			})
		})
	}
}

// Rule: a driver that has come back gets an eighth of its workers at first, and twice as many each second.
func TestDriverThatComesBackGetsItsCallsByAndBy(t *testing.T) {
	inVirtualTime(t, func(v *virtual) {
		v.driver.Workers, v.driver.Timeout = 32, 24*time.Hour
		var away atomic.Bool
		var session atomic.Pointer[backendSession]
		v.options.Connect = func(context.Context, registry.Driver) (hubdriver.Session, error) {
			if away.Load() {
				return nil, errors.New("nobody answers")
			}
			s := newBackendSession(v.backend)
			session.Store(s)
			return s, nil
		}
		v.register("n", "id-n")
		v.start()
		v.pass(time.Second)
		v.turn(fakecsi.Knobs{Hang: []fakecsi.Hang{{Method: fakecsi.ControllerPublishVolume}}})
		away.Store(true)
		session.Load().Close()
		v.askFor("v", 50)
		v.pass(time.Minute)
		away.Store(false)
		for v.backend.Books().AttachInFlight.Now == 0 {
			v.pass(10 * time.Millisecond)
		}
		for _, want := range []int{2, 4, 8, 16, 16} { // attaches have half
			if n := v.backend.Books().AttachInFlight.Now; n != want {
				t.Errorf("%d attaches in flight, want %d", n, want)
			}
			v.pass(time.Second)
		}
		v.turn(fakecsi.Knobs{ReleaseAll: true})
	})
}
