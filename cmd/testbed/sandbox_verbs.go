package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// sandboxVariable is the environment variable that has the path of the sandbox's socket.
	sandboxVariable = "SANDBOX"
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
	{"knobs", "DRIVER JSON", "Change how a driver behaves", (*sandbox).turnKnobs},
	{"books", "DRIVER", "Print the books of a driver as JSON: attachments, calls, violations", (*sandbox).showBooks},
	{"kill", "DRIVER|HUB", "End a driver or a hub at once, as SIGKILL does", (*sandbox).kill},
	{"stop", "HUB", "End a hub in good order, as SIGTERM does", (*sandbox).stopHub},
	{"start", "DRIVER|HUB", "Start a driver or a hub that does not run", (*sandbox).launch},
	{"add", "POD", "Make a Pod with a volume; the name begins with the driver's: fast-extra", (*sandbox).addPod},
	{"remove", "POD", "Delete a Pod, so that its volume is detached", (*sandbox).removePod},
}

// newVerbCommands makes a subcommand of each verb.
func newVerbCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range verbs {
		commands = append(commands, &cobra.Command{
			Use:   v.name + " " + v.object,
			Short: v.short,
			Args:  cobra.ExactArgs(len(strings.Fields(v.object))),
			RunE: func(cmd *cobra.Command, args []string) error {
				return askSandbox(cmd.Context(), v.name, args[0], strings.Join(args[1:], ""), cmd.OutOrStdout())
			},
		})
	}
	return commands
}

// askSandbox asks the sandbox of the environment to carry out a verb, and prints its answer.
func askSandbox(ctx context.Context, verb, object, body string, out io.Writer) error {
	socket := os.Getenv(sandboxVariable)
	if socket == "" {
		return fmt.Errorf("the environment variable %s is not set: source the env file that the sandbox has printed", sandboxVariable)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox/"+verb+"/"+url.PathEscape(object), strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("reach the sandbox: %w: is it still running?", err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("read the sandbox's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(answer)))
	}
	_, err = out.Write(answer)
	return err
}

// socket returns the path of the socket on which the verbs are served.
func (b *sandbox) socket() string { return b.folder + "/sandbox.sock" }

// handler serves the verbs: one at a time.
func (b *sandbox) handler() http.Handler {
	mux := http.NewServeMux()
	for _, v := range verbs {
		mux.HandleFunc("POST /"+v.name+"/{object}", func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeoutCause(r.Context(), verbTimeout, fmt.Errorf("not done after %v", verbTimeout))
			defer cancel()
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			answer := ""
			b.mu.Lock()
			defer b.mu.Unlock()
			if err == nil {
				answer, err = v.run(b, ctx, r.PathValue("object"), body)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_, _ = fmt.Fprintln(w, answer) // an error means that the client has hung up
		})
	}
	return mux
}

// driverNamed returns a driver by its short name.
func (b *sandbox) driverNamed(name string) (*testbed.Driver, error) {
	if d := b.driver(name); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("unknown name %q: the drivers are fast, slow, flaky and hanging; kill and start know hub and hub-2 too, stop only these", name)
}

func (b *sandbox) turnKnobs(_ context.Context, name string, body []byte) (string, error) {
	d, err := b.driverNamed(name)
	if err != nil {
		return "", err
	}
	knobs, err := fakecsi.ParseKnobs(body)
	if err == nil {
		err = d.Backend.Set(knobs)
	}
	return fmt.Sprintf("%s: set %s; %d attach and detach calls in flight", d.Name, body, d.Backend.Books().AttachInFlight.Now), err
}

func (b *sandbox) showBooks(_ context.Context, name string, _ []byte) (string, error) {
	d, err := b.driverNamed(name)
	if err != nil {
		return "", err
	}
	books, err := json.MarshalIndent(d.Backend.Books(), "", "  ")
	return string(books), err
}

func (b *sandbox) kill(_ context.Context, name string, _ []byte) (string, error) {
	if h := b.hubs[name]; h != nil {
		return endHub(name, h, func() error { h.Kill(); return nil })
	}
	d, err := b.driverNamed(name)
	if err != nil {
		return "", err
	}
	calls := d.Backend.Books().AttachInFlight.Now
	d.Server.Crash()
	return fmt.Sprintf("%s: killed with %d attach and detach calls in flight; its storage is kept", d.Name, calls), nil
}

func (b *sandbox) stopHub(ctx context.Context, name string, _ []byte) (string, error) {
	h := b.hubs[name]
	if h == nil {
		return "", fmt.Errorf("unknown name %q: choose from hub, hub-2", name)
	}
	return endHub(name, h, func() error { return h.Stop(ctx, verbTimeout) })
}

// endHub ends a hub that runs.
func endHub(name string, h *testbed.Hub, end func() error) (string, error) {
	if h.Process == nil || h.Ended() {
		return "", fmt.Errorf("%s does not run; start it with: testbed sandbox start %s", name, name)
	}
	return fmt.Sprintf("%s: ended (pid %d)", name, h.PID()), end()
}

func (b *sandbox) launch(ctx context.Context, name string, _ []byte) (string, error) {
	if h := b.hubs[name]; h != nil {
		return b.launchHub(ctx, name, h)
	}
	d, err := b.driverNamed(name)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: started on %s", d.Name, d.Socket), d.Server.Start()
}

// launchHub starts a hub again, at the same address, and blocks until it serves HTTP.
func (b *sandbox) launchHub(ctx context.Context, name string, h *testbed.Hub) (string, error) {
	if h.Process != nil && !h.Ended() {
		return "", fmt.Errorf("%s runs already (pid %d)", name, h.PID())
	}
	o := hubOptions
	o.Name, o.HTTPEndpoint = name, strings.TrimPrefix(h.URL, "http://")
	started, err := b.StartHub(ctx, o)
	if err != nil {
		return "", err
	}
	h.Process = started.Process
	err = testbed.WhileRunning(ctx, []*testbed.Process{h.Process}, func(ctx context.Context) error {
		return testbed.Insist(ctx, "wait until "+name+" serves "+h.URL, func(ctx context.Context) error { return ask(ctx, h.URL+"/readyz", nil) })
	})
	return fmt.Sprintf("%s: started (pid %d), status page %s/, log %s", name, h.PID(), h.URL, h.LogPath()), err
}

// volumeOfPod returns the volume of a Pod that users name, such as fast-extra.
func (b *sandbox) volumeOfPod(pod string) (volume, error) {
	short, _, named := strings.Cut(pod, "-")
	d := b.driver(short)
	if d == nil || !named {
		return volume{}, fmt.Errorf("name %q of a Pod does not begin with a driver and a dash: write for example fast-extra", pod)
	}
	for _, v := range b.workload.volumes {
		if v.name == pod {
			return v, nil
		}
	}
	return volume{name: pod, driver: d.Name, node: b.workload.nodes[0]}, nil
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
	return fmt.Sprintf("Pod default/%[1]s made on %[2]s; its claim default/%[1]s has volume %[1]s of %[3]s", pod, v.node, v.driver),
		b.Cluster.Create(ctx, added.pods()...)
}

func (b *sandbox) removePod(ctx context.Context, pod string, _ []byte) (string, error) {
	v, err := b.volumeOfPod(pod)
	if err != nil {
		return "", err
	}
	// No kubelet would ever confirm the end of a Pod.
	err = b.Plane.Clientset().CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	return fmt.Sprintf("Pod default/%s deleted; Kubernetes now asks to detach its volume from %s", pod, v.node), err
}

// waitForMode blocks until each hub that runs has the mode that drivers.yaml gives a driver. Without a valid
// drivers.yaml the hubs keep the mode that they have.
func (b *sandbox) waitForMode(ctx context.Context, driver string) error {
	configs, err := registry.ParseManifestFile(b.ConfigPath())
	if err != nil {
		return nil
	}
	want := configs[0].Drivers()[driver].Mode
	for name, h := range b.hubs {
		if h.Process == nil || h.Ended() || want == "" {
			continue
		}
		err := testbed.Insist(ctx, fmt.Sprintf("wait until %s has %s in mode %s", name, driver, want), func(ctx context.Context) error {
			var d status.Driver
			if err := ask(ctx, h.URL+"/api/v1/drivers/"+driver, &d); err != nil {
				return err
			}
			if d.Mode != string(want) || d.Lease.Mine && want != registry.ModeActive {
				return fmt.Errorf("it is in mode %s", d.Mode)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

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
