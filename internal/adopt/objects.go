package adopt

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"text/template"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"yaml": yamlString}).ParseFS(templateFiles, "templates/*"))

// DefaultImage returns the image that a mode puts beside a driver.
func DefaultImage(mode Mode) string {
	if mode == ModeDropIn {
		return hubName
	}
	return proxyName
}

// Certificates says who makes the certificates of proxies.
type Certificates string

const (
	CertManager  Certificates = "cert-manager" // Issuers and Certificates of cert-manager
	CertExisting Certificates = "existing"     // the user makes the Secret
)

// AllCertificates are the values of Certificates, the default first.
var AllCertificates = []Certificates{CertManager, CertExisting}

const (
	// maxBase bounds a base name: with the longest suffix it is still a DNS label (63), and with "-ca" a common
	// name of a certificate (64).
	maxBase    = 50
	basePrefix = "attach-hub-"
	// DefaultHubNamespace and hubName are those of the hub's own Deployment.
	DefaultHubNamespace = "csi-attach-hub"
	hubName             = "csi-attach-hub"
	proxyName           = "csi-attach-proxy"
	// proxyLabel is on all Pods with a proxy. driverLabelPrefix and the driver's name are on those of the driver.
	proxyLabel        = "attach-hub/proxy"
	driverLabelPrefix = "driver.attach-hub/"
	// hubCA is the ConfigMap with the hub's CA in the namespace of a driver.
	hubCA = "attach-hub-ca"
)

// Base returns the name of the objects on the driver's side, a DNS label of at most 50 characters.
func Base(driver string) string {
	base := basePrefix + strings.ToLower(strings.ReplaceAll(driver, ".", "-"))
	if len(base) <= maxBase {
		return base
	}
	sum := sha256.Sum256([]byte(driver))
	return strings.TrimRight(base[:maxBase-9], "-") + "-" + hex.EncodeToString(sum[:4])
}

// objects returns the YAML documents of the objects that the driver needs beside its workload. What the hub needs, its
// chart makes from the driver's entry.
func (p Plan) objects() (string, error) {
	names := []string{"service.yaml"}
	if p.Options.Certificates != CertExisting {
		names = append(names, "certificates.yaml")
	}
	if !p.HostNetwork() { // policies do not hold for Pods on the host network
		names = append(names, "networkpolicy.yaml")
	}
	var documents []string
	for _, name := range names {
		text, err := execute(name, p)
		if err != nil {
			return "", err
		}
		documents = append(documents, text)
	}
	return strings.Join(documents, "---\n"), nil
}

func execute(name string, data any) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

// DriverLabel is the label of the driver's Pods with a proxy.
func (p Plan) DriverLabel() string { return driverLabelPrefix + p.Driver }

// portRange are ports of a network policy.
type portRange struct {
	First, Last int32
	Protocol    string
}

// OtherPorts returns all ports of the Pod but those of proxies.
func (p Plan) OtherPorts() []portRange {
	var closed []int32
	for _, driver := range p.pod {
		closed = append(closed, driver.Ports.Listen, driver.Ports.Health)
	}
	slices.Sort(closed)
	var others []portRange
	first := int32(1)
	for _, port := range append(closed, 65536) {
		if first < port {
			others = append(others, portRange{first, port - 1, "TCP"})
		}
		first = port + 1
	}
	return append(others, portRange{1, 65535, "UDP"})
}

// policies returns the names of the network policies that select the Pods of a workload for Ingress, without those that
// adopt has made. One whose selector cannot be read counts: what it closes must not be opened.
func (in input) policies(w *Workload) []string {
	var names []string
	for _, o := range in.objects {
		if o.GetKind() != "NetworkPolicy" || cmp.Or(o.GetNamespace(), w.Namespace) != w.Namespace || strings.HasPrefix(o.GetName(), basePrefix) {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if !decode(o, &policy) {
			names = append(names, o.GetName())
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		types := policy.Spec.PolicyTypes // empty: Ingress, and Egress if it has rules
		if (len(types) == 0 || slices.Contains(types, networkingv1.PolicyTypeIngress)) && (err != nil || selector.Matches(labels.Set(w.Template.Labels))) {
			names = append(names, o.GetName())
		}
	}
	return names
}

// OpensOtherPorts reports whether the driver's network policy keeps the ports of other containers open. If another
// policy closes them, this policy must not open them.
func (p Plan) OpensOtherPorts() bool { return len(p.policies) == 0 }

// yamlString returns a text as YAML, in quotes where it needs them: namespaces can be called 1234, 1e3, true or null.
func yamlString(text string) string {
	plain, err := yaml.Marshal(text)
	if err != nil || strings.TrimSuffix(string(plain), "\n") != text || text[0] <= '9' { // YAML 1.1 and 1.2 read digits differently
		return strconv.Quote(text)
	}
	return text
}
