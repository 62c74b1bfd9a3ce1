package crash

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// process is one of the two hubs of a batch, with its own proxy, drivers.yaml and sockets.
type process struct {
	*testbed.Process
	name    string
	dir     string
	proxy   *proxy
	drivers []*testbed.Driver
	trials  []*trial // by driver
}

// startProcess starts a hub that serves the driver of each trial. The caller must close it, also after an error.
func startProcess(ctx context.Context, b Batch, index int, namespace string, trials []*trial) (*process, error) {
	p := &process{name: fmt.Sprintf("hub%d", index), trials: trials}
	p.dir = filepath.Join(b.Dir, p.name)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return p, err
	}
	tapes := map[string]*tape{}
	for _, t := range trials {
		tapes[t.key] = t.tapes[index]
		d, err := serveDriver(t.backend, p.dir, t.key, t.tapes[index])
		if err != nil {
			return p, err
		}
		p.drivers = append(p.drivers, d)
	}
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	var err error
	if p.proxy, err = newProxy(b.Plane, kubeconfig, tapes); err != nil {
		return p, err
	}
	if err := p.configure("active"); err != nil {
		return p, err
	}
	// A dead process' leases are made to expire (expire), so these need not be short: busy machines keep them.
	p.Process, err = testbed.StartHub(ctx, testbed.HubOptions{
		Name: p.name, Binary: b.Hub, Kubeconfig: kubeconfig, Config: p.config(), LogPath: p.log(), Verbosity: 2,
		Args: []string{"--leader-election-namespace", namespace, "--leader-election-lease-duration=60s", "--leader-election-renew-deadline=50s", "--leader-election-retry-period=2s"},
	})
	return p, err
}

func (p *process) config() string { return filepath.Join(p.dir, "drivers.yaml") }
func (p *process) log() string    { return filepath.Join(p.dir, "log") }

// configure writes drivers.yaml with a mode for all drivers.
func (p *process) configure(mode string) error {
	of := map[*testbed.Driver]string{}
	for i, d := range p.drivers {
		of[d] = p.trials[i].Scenario.settings
	}
	content := testbed.Config(p.drivers, "{mode: "+mode+", drift: {interval: 0}, retry: {initial: 200ms, max: 2s}}", func(d *testbed.Driver) string { return of[d] })
	next := p.config() + ".new"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(next, p.config()) // the process reads it whole
}

// logged reports whether the process has logged the words.
func (p *process) logged(words string) bool {
	log, err := os.ReadFile(p.log())
	return err == nil && strings.Contains(string(log), words)
}

func (p *process) close() {
	if p.Process != nil {
		p.Kill()
	}
	for _, d := range p.drivers {
		d.Server.Crash()
	}
	if p.proxy != nil && p.proxy.APIProxy != nil {
		p.proxy.Close()
	}
}
