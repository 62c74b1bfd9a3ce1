package hubclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// maxAnswer bounds what is read of one answer, in bytes: a hub with 1000 drivers sends less.
	maxAnswer = 64 << 20
	// maxRequests bounds the replicas that are asked at once.
	maxRequests = 8
	// maxErrorText bounds what is shown of an error that no hub sent, in bytes.
	maxErrorText = 300
)

// Hub asks the replicas of a hub. Its methods may be called from any goroutine.
type Hub struct {
	replicas []*replica
}

// replica is one process of a hub.
type replica struct {
	name   string
	base   *url.URL
	client *http.Client
	tunnel *tunnel // nil if it is reached over the network
	err    error   // why it cannot be asked
}

// Close ends all connections.
func (h *Hub) Close() {
	for _, r := range h.replicas {
		if r.client != nil {
			r.client.CloseIdleConnections()
		}
		if r.tunnel != nil {
			r.tunnel.close()
		}
	}
}

// View asks all replicas and merges their answers. A replica that does not answer is in the
// View with its error.
func (h *Hub) View(ctx context.Context) View {
	answers := make([]Answer, len(h.replicas))
	var asking errgroup.Group
	asking.SetLimit(maxRequests)
	for i, r := range h.replicas {
		asking.Go(func() error {
			answers[i] = r.answer(ctx)
			return nil
		})
	}
	_ = asking.Wait() // errors are in the answers
	return Merge(answers)
}

func (r *replica) answer(ctx context.Context) Answer {
	a := Answer{Replica: r.name}
	var drivers status.DriverList
	if a.Err = r.get(ctx, "/api/v1/overview", nil, &a.Overview); a.Err == nil {
		a.Err = r.get(ctx, "/api/v1/drivers", nil, &drivers)
	}
	if a.Err == nil {
		a.Drivers = drivers.Drivers
	}
	a.Time = time.Now()
	return a
}

// Driver asks one replica, by its name in the View, for a driver with its checklist.
func (h *Hub) Driver(ctx context.Context, name, driver string) (*status.Driver, error) {
	r := h.replica(name)
	if r == nil {
		return nil, fmt.Errorf("there is no replica %s", name)
	}
	var d status.Driver
	if err := r.get(ctx, "/api/v1/drivers/"+driver, nil, &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Attachment asks one replica, by its name in the View, for a VolumeAttachment. It returns nil
// if the replica does not know it.
func (h *Hub) Attachment(ctx context.Context, name, attachment string) (*status.Attachment, error) {
	i := slices.IndexFunc(h.replicas, func(r *replica) bool { return r.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no replica %s", name)
	}
	var list status.AttachmentList
	if err := h.replicas[i].get(ctx, "/api/v1/attachments", url.Values{"name": {attachment}}, &list); err != nil {
		return nil, err
	}
	if len(list.Attachments) == 0 {
		return nil, nil
	}
	return &list.Attachments[0], nil
}

// VolumeHealth has one replica, by its name in the View, ask the driver of a VolumeAttachment about the health of the
// volume. It blocks for some seconds if the driver is slow.
func (h *Hub) VolumeHealth(ctx context.Context, name, attachment string) (*status.VolumeHealth, error) {
	r := h.replica(name)
	if r == nil {
		return nil, fmt.Errorf("there is no replica %s", name)
	}
	var health status.VolumeHealth
	if err := r.get(ctx, "/api/v1/volume-health", url.Values{"attachment": {attachment}}, &health); err != nil {
		return nil, err
	}
	return &health, nil
}

// get requests a path and decodes the JSON answer.
func (r *replica) get(ctx context.Context, path string, query url.Values, into any) error {
	if r.err != nil {
		return r.err
	}
	target := *r.base
	target.Path += path
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	answer, err := r.client.Do(request)
	if err != nil {
		return err // it names the method and the URL
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s%s", path, answer.Status, errorText(answer, body))
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("get %s: it does not answer as a csi-attach-hub: %w", path, err)
	}
	return nil
}

// errorText returns the text of an error answer: a hub sends JSON, a proxy in front of it
// plain text.
func errorText(answer *http.Response, body []byte) string {
	text := ""
	var failure struct{ Error string }
	if json.Unmarshal(body, &failure) == nil {
		text = failure.Error
	} else if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind == "text/plain" || kind == "" {
		text, _, _ = strings.Cut(strings.TrimSpace(string(body)), "\n")
		text = text[:min(len(text), maxErrorText)]
	}
	if text = strings.TrimSpace(text); text != "" {
		text = ": " + text
	}
	return text
}
