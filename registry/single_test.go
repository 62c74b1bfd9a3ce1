package registry_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const singleEndpoint = "unix:///csi/csi.sock"

// newSingle returns the source of a driver that gives these answers, one after the
// other, and the last one for ever. An answer that begins with '!' is an error.
func newSingle(t *testing.T, answers ...string) *registry.Single {
	t.Helper()
	settings := registry.DefaultSettings()
	settings.Workers = 7
	s, err := registry.NewSingle(registry.Driver{Endpoint: singleEndpoint, Settings: settings, Source: "--csi-address"},
		func(_ context.Context, endpoint registry.Endpoint) (string, error) {
			if endpoint != singleEndpoint {
				t.Errorf("asked %s", endpoint)
			}
			answer := answers[0]
			if len(answers) > 1 {
				answers = answers[1:]
			}
			if problem, isError := strings.CutPrefix(answer, "!"); isError {
				return "", errors.New(problem)
			}
			return answer, nil
		})
	check(t, err)
	return s
}

func TestSingleDriverIsServedOnceItToldItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSingle(t, "!no such file", "!no such file", "", "no/name", "d.example.com")
		r := runSource(t, follow(s))
		r.expect() // at once, so that nothing has to wait for the driver
		r.expect("d.example.com")
		settings := registry.DefaultSettings()
		settings.Workers = 7
		want := registry.Driver{Name: "d.example.com", Endpoint: singleEndpoint, Settings: settings, Source: "--csi-address"}
		if got := s.Config().Drivers(); len(got) != 1 || got["d.example.com"] != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		r.stop()
		// What is known stays known, and is the first set of the next Run.
		again := runSource(t, follow(s))
		if got := again.next(); !slices.Equal(got, []string{"d.example.com"}) {
			t.Errorf("the first set of the second Run is %v", got)
		}
		again.stop()
	})
}

func TestSingleDriverThatNeverAnswersHoldsUpNothingAndSaysSoNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := 0
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "no such file") {
				lines++
			}
		}, funcr.Options{})
		s := newSingle(t, "!no such file")
		r := runSourceWith(t, klog.NewContext(t.Context(), logger), follow(s))
		r.expect()
		time.Sleep(5*time.Minute + 30*time.Second)
		synctest.Wait()
		if lines != 6 {
			t.Errorf("%d lines about it in five and a half minutes, want 6", lines)
		}
		r.stop()
	})
}

func TestSingleDriverNeedsSettingsInRange(t *testing.T) {
	if _, err := registry.NewSingle(registry.Driver{Endpoint: singleEndpoint}, nil); err == nil || !strings.Contains(err.Error(), "workers") {
		t.Errorf("got %v", err)
	}
}
