package status

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// asked is a VolumeHealthReader that answers when answer is closed.
type asked struct{ answer chan struct{} }

func (a asked) VolumeHealth(ctx context.Context, _ string) (VolumeHealth, error) {
	select {
	case <-a.answer:
		return VolumeHealth{Problems: []VolumeProblem{{Status: "DEGRADED", Message: hostile}}}, nil
	case <-ctx.Done():
		return VolumeHealth{}, errors.New("the client has left")
	}
}

// A driver that is slow must not keep anybody from the pages: questions about volumes take no place among the renderings.
func TestQuestionsAboutTheHealthOfVolumesDelayNoPage(t *testing.T) {
	reader := asked{make(chan struct{})}
	u := startServer(t, newFakeHub(), func(o *Options) { o.Volumes = reader })
	var questions sync.WaitGroup
	for range 2 * maxRenderings {
		questions.Go(func() {
			code, _, body := get(t, u+"/api/v1/volume-health?attachment=csi-1")
			if code != http.StatusOK || strings.Contains(body, "<script>") || !strings.Contains(body, "DEGRADED") {
				t.Errorf("got %d %s", code, body)
			}
		})
	}
	for _, path := range []string{"/", "/api/v1/drivers"} {
		if code, _, body := get(t, u+path); code != http.StatusOK {
			t.Errorf("%s: got %d %s", path, code, body)
		}
	}
	close(reader.answer)
	questions.Wait()
}
