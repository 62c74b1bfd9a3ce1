package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

const (
	// maxVerbBody bounds the body of a request, in bytes.
	maxVerbBody = 1 << 20
	// verbTimeout bounds the time of one verb.
	verbTimeout = time.Minute
)

// verb is something that users do to the sandbox: POST /NAME/OBJECT, or testbed sandbox NAME OBJECT.
type verb struct {
	name, object, short string
	run                 func(b *sandbox, ctx context.Context, object string, body []byte) (answer string, err error)
}

// verbs are all verbs, in the order of the help.
var verbs = []verb{
	{"knobs", "DRIVER JSON", "Change how a driver behaves, and say what changed", (*sandbox).turnKnobs},
	{"kill", "DRIVER|HUB", "End a driver or a hub at once, as SIGKILL does", (*sandbox).kill},
	{"stop", "DRIVER|HUB", "End a driver or a hub in good order, as SIGTERM does", (*sandbox).halt},
	{"start", "DRIVER|HUB", "Start a driver or a hub that does not run", (*sandbox).launch},
	{"add", "POD", "Make a Pod with a volume; the name begins with the driver's: fast-extra", (*sandbox).addPod},
	{"remove", "POD", "Delete a Pod, so that its volume is detached", (*sandbox).removePod},
}

// socket returns the path of the socket on which the verbs are served.
func (b *sandbox) socket() string { return b.folder.dir + "/sandbox.sock" }

// verbs serves the verbs: one at a time, each until it is done or ctx ends.
func (b *sandbox) verbs(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	for _, v := range verbs {
		mux.HandleFunc("POST /"+v.name+"/{object}", func(w http.ResponseWriter, r *http.Request) {
			answer, err := b.perform(ctx, v, r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			// An error means that the client has hung up.
			_, _ = fmt.Fprintln(w, answer)
		})
	}
	return mux
}

func (b *sandbox) perform(ctx context.Context, v verb, r *http.Request) (string, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxVerbBody))
	if err != nil {
		return "", fmt.Errorf("read the request: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, verbTimeout, fmt.Errorf("not done after %v", verbTimeout))
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", errors.New("the sandbox is stopping")
	}
	return v.run(b, ctx, r.PathValue("object"), body)
}

// find returns the driver of a short name; nil: there is none.
func (b *sandbox) find(short string) *sceneDriver {
	for i := range b.running {
		if b.running[i].short == short {
			return &b.running[i]
		}
	}
	return nil
}

// unknown returns the error for a name that is not one of these.
func unknown(name string, lists ...[]string) error {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return fmt.Errorf("unknown name %q: choose from %s", name, strings.Join(all, ", "))
}

func (b *sandbox) driverNames() []string {
	var names []string
	for _, p := range b.running {
		names = append(names, p.short)
	}
	return names
}

func (b *sandbox) turnKnobs(_ context.Context, name string, body []byte) (string, error) {
	p := b.find(name)
	if p == nil {
		return "", unknown(name, b.driverNames())
	}
	return p.Backend.SetJSON(body)
}

func (b *sandbox) kill(_ context.Context, name string, _ []byte) (string, error) {
	return b.end(name, "killed", func(p *sceneDriver) { p.Server.Crash() }, func(h *testbed.Hub) error { h.Kill(); return nil })
}

func (b *sandbox) halt(ctx context.Context, name string, _ []byte) (string, error) {
	return b.end(name, "stopped",
		func(p *sceneDriver) { stop(ctx, p.Server) },
		func(h *testbed.Hub) error { return h.Stop(ctx, verbTimeout) })
}

// end ends a driver or a hub, one way or the other.
func (b *sandbox) end(name, how string, driver func(*sceneDriver), hub func(*testbed.Hub) error) (string, error) {
	if slot := b.hubs[name]; slot != nil {
		if !slot.runs() {
			return "", fmt.Errorf("%s does not run; start it with: testbed sandbox start %s", name, name)
		}
		if err := hub(slot.hub); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s: %s (pid %d)", name, how, slot.hub.PID()), nil
	}
	p := b.find(name)
	switch {
	case p == nil:
		return "", unknown(name, b.driverNames(), hubNames)
	case b.down[name]:
		return "", fmt.Errorf("%s does not run; start it with: testbed sandbox start %s", name, name)
	}
	calls := p.Backend.Books().AttachInFlight.Now
	driver(p)
	b.down[name] = true
	return fmt.Sprintf("%s: %s with %d attach and detach calls in flight; its storage is kept", p.Name, how, calls), nil
}

func (b *sandbox) launch(ctx context.Context, name string, _ []byte) (string, error) {
	if slot := b.hubs[name]; slot != nil {
		return b.launchHub(ctx, name, slot)
	}
	p := b.find(name)
	switch {
	case p == nil:
		return "", unknown(name, b.driverNames(), hubNames)
	case !b.down[name]:
		return "", fmt.Errorf("%s runs already", name)
	}
	if err := p.Server.Start(); err != nil {
		return "", err
	}
	delete(b.down, name)
	return fmt.Sprintf("%s: started on %s", p.Name, p.Socket), nil
}

// volumeOfPod returns the volume of a Pod that users name, such as fast-extra.
func (b *sandbox) volumeOfPod(pod string) (volume, error) {
	short, _, _ := strings.Cut(pod, "-")
	p := b.find(short)
	if p == nil || short == pod {
		return volume{}, fmt.Errorf("name %q of a Pod does not begin with a driver and a dash: write for example %s-extra; the drivers are %s",
			pod, b.running[0].short, strings.Join(b.driverNames(), ", "))
	}
	for _, v := range b.workload.volumes {
		if v.name == pod {
			return v, nil
		}
	}
	return volume{name: pod, driver: p.driver(), node: b.workload.nodes[0]}, nil
}

// addPod makes a Pod, and its claim and volume if they do not exist.
func (b *sandbox) addPod(ctx context.Context, pod string, _ []byte) (string, error) {
	v, err := b.volumeOfPod(pod)
	if err != nil {
		return "", err
	}
	added := workload{volumes: []volume{v}}
	if err := b.makeClaims(ctx, added); err != nil {
		return "", err
	}
	// A recipe edits drivers.yaml and adds a Pod at once.
	if err := b.waitForMode(ctx, v.driver); err != nil {
		return "", err
	}
	if err := b.Cluster.Create(ctx, added.pods()...); err != nil {
		return "", err
	}
	return fmt.Sprintf("Pod default/%[1]s made on %[2]s; its claim default/%[1]s has volume %[1]s of %[3]s", pod, v.node, v.driver), nil
}

func (b *sandbox) removePod(ctx context.Context, pod string, _ []byte) (string, error) {
	v, err := b.volumeOfPod(pod)
	if err != nil {
		return "", err
	}
	pods := b.Plane.Clientset().CoreV1().Pods(metav1.NamespaceDefault)
	// No kubelet would ever confirm the end of a Pod.
	if err := pods.Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return "", err
	}
	return fmt.Sprintf("Pod default/%s deleted; Kubernetes now asks to detach its volume from %s", pod, v.node), nil
}
