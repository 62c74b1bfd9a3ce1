package torture

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"
)

// recordedClient returns a client whose writes are in the history. It is not behind a proxy.
func (w *world) recordedClient() (kubernetes.Interface, error) {
	config := w.Plane.RESTConfig()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &recorder{next: next, history: w.history, driver: w.driverOf}
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// driverOf returns the driver of a volume; empty: it is not a volume of this run.
func (w *world) driverOf(volume string) string {
	for _, v := range w.all {
		if v.name == volume {
			return v.storage.Name
		}
	}
	return ""
}

// processName returns the name of a process; it has the name of its hub.
func (w *world) processName(pid int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.names[pid], fmt.Sprintf("process/%d", pid))
}

// named notes a process of a hub.
func (w *world) named(hub string, pid int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[pid] = fmt.Sprintf("%s/%d", hub, pid)
	return w.names[pid]
}
