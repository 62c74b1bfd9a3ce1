package adopt

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// scraped returns what used the metrics port of csi-attacher, which goes away with the container: "" if it has none.
func (in input) scraped(p Plan) string {
	if p.Flags.HTTPEndpoint == "" {
		return ""
	}
	_, number, _ := net.SplitHostPort(p.Flags.HTTPEndpoint)
	names := map[string]bool{number: true}
	for _, port := range p.Container.Ports {
		if strconv.Itoa(int(port.ContainerPort)) == number && !in.namedElsewhere(p, port.Name) {
			names[port.Name] = true
		}
	}
	delete(names, "")
	var users []string
	for _, c := range p.Workload.containers() {
		line, _ := wordsOf(p.Workload, c)
		if upstream := flagValue(line, "upstream"); c.Name != p.Container.Name && number != "" && strings.HasSuffix(strings.TrimRight(upstream, "/"), ":"+number) {
			users = append(users, "container "+c.Name+", which has nothing to forward any more")
		}
	}
	for _, o := range in.objects {
		var service corev1.Service
		if o.GetKind() != "Service" || !decode(o, &service) || len(service.Spec.Selector) == 0 || service.Namespace != p.Workload.GetNamespace() ||
			!labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.Workload.Template.Labels)) {
			continue
		}
		for _, port := range service.Spec.Ports {
			target := port.TargetPort.String()
			if target == "0" || target == "" {
				target = strconv.Itoa(int(port.Port))
			}
			if names[target] {
				users = append(users, fmt.Sprintf("port %d of Service %s", port.Port, service.Name))
				users = append(users, in.monitors(service, port.Name)...)
			}
		}
	}
	text := fmt.Sprintf("the metrics of csi-attacher on %s end with it, and so does the probe of /healthz/leader-election: scrape the hub instead", p.Flags.HTTPEndpoint)
	if len(users) > 0 {
		text += "; remove what leads there: " + strings.Join(users, ", ")
	}
	return text
}

// namedElsewhere reports whether another container has a port of that name: then the name alone does not say whose
// port is meant.
func (in input) namedElsewhere(p Plan, name string) bool {
	for _, c := range p.Workload.containers() {
		for _, port := range c.Ports {
			if c.Name != p.Container.Name && port.Name == name {
				return true
			}
		}
	}
	return false
}

// monitors returns the ServiceMonitors that scrape a port of a Service.
func (in input) monitors(service corev1.Service, port string) []string {
	var all []string
	for _, o := range in.objects {
		var monitor struct {
			Spec struct {
				Selector  struct{ MatchLabels map[string]string }
				Endpoints []struct{ Port string }
			}
		}
		if o.GetKind() != "ServiceMonitor" || !decode(o, &monitor) || !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels)) {
			continue
		}
		for _, e := range monitor.Spec.Endpoints {
			if e.Port == port {
				all = append(all, "endpoint "+port+" of ServiceMonitor "+o.GetName())
			}
		}
	}
	return all
}
