package adopt

import (
	"bytes"
	"cmp"
	"embed"
	"slices"
	"strings"
	"text/template"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"join": strings.Join, "yaml": yamlString, "yamls": yamlStrings}).ParseFS(templateFiles, "templates/*.yaml"))

// Certificates says who makes the certificates of proxies.
type Certificates string

const (
	CertManager  Certificates = "cert-manager" // Issuers and Certificates of cert-manager
	CertExisting Certificates = "existing"     // the user makes the Secret
)

// AllCertificates are the values of Certificates, the default first.
var AllCertificates = []Certificates{CertManager, CertExisting}

// DriverObjects returns the YAML documents of the objects that the driver's side needs beside its workload; none in
// place of a csi-attacher.
func (p Plan) DriverObjects() ([]byte, error) {
	var names []string
	switch p.Options.Mode {
	case ModeProxy:
		names = append(names, "service.yaml")
		if p.Options.Certificates != CertExisting {
			names = append(names, "certificates.yaml")
		}
		if !p.HostNetwork() { // policies do not hold for Pods on the host network
			names = append(names, "networkpolicy.yaml")
		}
	case ModeSidecarHub:
		if p.FirstOfPod() {
			names = append(names, "sidecar_hub.yaml")
		}
	default:
		return nil, nil
	}
	if len(p.Rights()) > 0 {
		names = append(names, "rights.yaml")
	}
	return p.execute(names...)
}

// HubObjects returns the YAML documents of the objects that the driver needs in the namespace of the hub; none without
// a proxy.
func (p Plan) HubObjects() ([]byte, error) {
	if p.Options.Mode != ModeProxy {
		return nil, nil
	}
	return p.execute("hub.yaml")
}

// account is a ServiceAccount.
type account struct{ Namespace, Name string }

// HubNamespace returns the namespace of the hub that has its own Deployment.
func (p Plan) HubNamespace() string { return cmp.Or(p.Options.HubNamespace, DefaultHubNamespace) }

// HubAccount returns the ServiceAccount of the hub that serves the driver.
func (p Plan) HubAccount() account {
	if p.Options.Mode == ModeSidecarHub {
		return account{p.Workload.Namespace, cmp.Or(p.Workload.Template.Spec.ServiceAccountName, "default")}
	}
	return account{p.HubNamespace(), hubName}
}

// execute returns the documents of several templates.
func (p Plan) execute(names ...string) ([]byte, error) {
	var documents [][]byte
	for _, name := range names {
		var b bytes.Buffer
		if err := templates.ExecuteTemplate(&b, name, p); err != nil {
			return nil, err
		}
		documents = append(documents, b.Bytes())
	}
	return bytes.Join(documents, []byte("---\n")), nil
}

// DriverLabel is the label of the driver's Pods with a proxy.
func (p Plan) DriverLabel() string { return driverLabelPrefix + p.Driver }

// NodeCIDRs returns the addresses of nodes, all addresses if the user named none.
func (p Plan) NodeCIDRs() []string {
	if len(p.Options.NodeCIDRs) > 0 {
		return p.Options.NodeCIDRs
	}
	return []string{"0.0.0.0/0", "::/0"}
}

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

// right are the hub's rights in a namespace.
type right struct {
	Namespace string
	Lease     string
	Secrets   []string
}

// Rights returns the hub's rights on the driver's Lease and Secrets, with an item for each namespace.
func (p Plan) Rights() []right {
	var rights []right
	inOwnNamespace := p.Options.Mode == ModeSidecarHub && p.LeaseNamespace() == p.Workload.Namespace // its replicas need all leases there
	if p.Flags.LeaderElection && !inOwnNamespace {
		rights = append(rights, right{Namespace: p.LeaseNamespace(), Lease: registry.LeaseName(p.Driver)})
	}
	for _, s := range p.Secrets {
		i := slices.IndexFunc(rights, func(r right) bool { return r.Namespace == s.Namespace })
		if i < 0 {
			i, rights = len(rights), append(rights, right{Namespace: s.Namespace})
		}
		rights[i].Secrets = append(rights[i].Secrets, s.Name)
	}
	return rights
}

// String returns "namespace/name".
func (s SecretName) String() string { return s.Namespace + "/" + s.Name }
