package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// hubNames are the hubs of a sandbox. The first one runs from the beginning.
var hubNames = []string{"hub", "hub-2"}

// hubSlot is a hub that can be started and ended any number of times, with the same address.
type hubSlot struct {
	hub *testbed.Hub // the latest; nil: never started
	url string       // without a path
}

func (s *hubSlot) runs() bool {
	if s.hub == nil {
		return false
	}
	select {
	case <-s.hub.Done():
		return false
	default:
		return true
	}
}

// makeHubSlots chooses the address of the second hub, so that the env file can name it.
func (b *sandbox) makeHubSlots(ctx context.Context) error {
	address, err := testbed.FreeAddress(ctx)
	if err != nil {
		return err
	}
	b.hubs = map[string]*hubSlot{hubNames[0]: {b.hub, b.hub.URL}, hubNames[1]: {nil, "http://" + address}}
	return nil
}

// launchHub starts a hub and blocks until it serves HTTP.
func (b *sandbox) launchHub(ctx context.Context, name string, slot *hubSlot) (string, error) {
	if slot.runs() {
		return "", fmt.Errorf("%s runs already (pid %d)", name, slot.hub.PID())
	}
	o := hubOptions
	o.Name, o.HTTPEndpoint = name, strings.TrimPrefix(slot.url, "http://")
	hub, err := b.StartHub(ctx, o)
	if err != nil {
		return "", err
	}
	slot.hub = hub
	err = testbed.WhileRunning(ctx, []*testbed.Process{hub.Process}, func(ctx context.Context) error {
		return testbed.Insist(ctx, "wait until "+name+" serves "+slot.url, func(ctx context.Context) error { return alive(ctx, slot.url) })
	})
	if err != nil {
		return "", err
	}
	b.reportEnd(hub.Process)
	return fmt.Sprintf("%s: started (pid %d), status page %s/, log %s", name, hub.PID(), slot.url, hub.LogPath()), nil
}

// waitForMode blocks until each hub that runs has the mode that drivers.yaml gives a driver. Without a valid
// drivers.yaml the hubs keep the mode that they have.
func (b *sandbox) waitForMode(ctx context.Context, driver string) error {
	configs, err := registry.ParseManifestFile(b.ConfigPath())
	if err != nil {
		return nil
	}
	want, ok := configs[0].Drivers()[driver]
	if !ok {
		return nil
	}
	for _, slot := range b.hubs {
		if !slot.runs() {
			continue
		}
		if err := waitForMode(ctx, slot.url, want); err != nil {
			return err
		}
	}
	return nil
}

func waitForMode(ctx context.Context, url string, want registry.Driver) error {
	what := fmt.Sprintf("wait until %s has %s in mode %s", url, want.Name, want.Mode)
	return testbed.Insist(ctx, what, func(ctx context.Context) error {
		var d status.Driver
		if err := ask(ctx, url+"/api/v1/drivers/"+want.Name, &d); err != nil {
			return err
		}
		if active := want.Mode == registry.ModeActive; d.Mode != string(want.Mode) || d.Lease.Mine && !active {
			return fmt.Errorf("it is in mode %s", d.Mode)
		}
		return nil
	})
}

// alive asks a hub whether it is alive.
func alive(ctx context.Context, url string) error { return ask(ctx, url+"/livez", nil) }

// ask gets a URL, and decodes the JSON of the answer unless into is nil.
func ask(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// reportEnd prints when a process ends, until the sandbox is closed. The sandbox goes on.
func (b *sandbox) reportEnd(p *testbed.Process) {
	b.background.Go(func() {
		select {
		case <-p.Done():
			fmt.Fprintf(b.opts.out, "The %s (pid %d) has ended; its log is %s\n", p.Name(), p.PID(), p.LogPath())
		case <-b.done:
		}
	})
}
