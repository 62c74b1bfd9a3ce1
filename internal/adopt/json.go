package adopt

import (
	"encoding/json"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// planJSON is a plan for programs. Its lists are never null. Fields of what an adoptable driver alone has are missing
// in other plans.
type planJSON struct {
	File          string          `json:"file"`
	Document      int             `json:"document,omitempty"`
	Kind          string          `json:"kind"`
	Namespace     string          `json:"namespace"`
	Name          string          `json:"name"`
	Replicas      int64           `json:"replicas"`
	Container     string          `json:"container"`
	Driver        string          `json:"driver,omitempty"`
	NameFrom      string          `json:"nameFrom,omitempty"`
	Mode          Mode            `json:"mode"`
	Adoptable     bool            `json:"adoptable"`
	Reasons       []string        `json:"reasons"`
	Notes         []string        `json:"notes"`
	Socket        string          `json:"socket"`
	SocketVolume  string          `json:"socketVolume"`
	RunAsUser     *int64          `json:"runAsUser,omitempty"`
	FSGroup       *int64          `json:"fsGroup,omitempty"`
	HostNetwork   bool            `json:"hostNetwork"`
	LeaderElected bool            `json:"leaderElection"`
	Lease         leaseJSON       `json:"lease"`
	Secrets       []string        `json:"secrets"`
	Settings      []settingJSON   `json:"settings"`
	NotCarried    []otherFlagJSON `json:"flagsNotCarriedOver"`
	Unknown       []string        `json:"unknownFlags"`
	Proxy         *proxyJSON      `json:"proxy,omitempty"`
}

type settingJSON struct {
	Key   string `json:"key"`   // of drivers.yaml, with dots
	Value string `json:"value"` // in YAML
	Flag  string `json:"flag"`
}

type otherFlagJSON struct {
	Flag string `json:"flag"`
	Why  string `json:"why"`
}

type leaseJSON struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name,omitempty"`
	Wait      float64 `json:"waitSeconds"`
}

// proxyJSON is what an adoptable driver gets in mode proxy.
type proxyJSON struct {
	Name       string `json:"name"` // of all objects
	Port       int32  `json:"port"`
	HealthPort int32  `json:"healthPort"`
	Endpoint   string `json:"endpoint"`
	Entry      string `json:"entry"` // of drivers.yaml, as an item of the list drivers
}

// JSON returns {"attachers": [...]} with an item for each plan.
func JSON(plans []Plan) ([]byte, error) {
	all := []planJSON{}
	for _, p := range plans {
		j := planJSON{
			File: p.Workload.Source.File, Document: p.Workload.Source.Document,
			Kind: p.Workload.GetKind(), Namespace: p.Workload.Namespace, Name: p.Workload.GetName(), Replicas: p.Workload.Replicas,
			Container: p.Container.Name, Driver: p.Driver, NameFrom: p.NameFrom, Mode: p.Options.Mode, Adoptable: p.Adoptable(),
			Reasons: notNil(p.No), Notes: notNil(p.notes()), Socket: p.Socket.Path, SocketVolume: p.Socket.Volume.Name,
			RunAsUser: p.user().UID, FSGroup: p.User.FSGroup, HostNetwork: p.HostNetwork(), LeaderElected: p.Flags.LeaderElection,
			Lease: leaseJSON{Namespace: p.LeaseNamespace(), Wait: p.LeaseWait().Seconds()}, Unknown: notNil(p.Flags.Unknown),
			Secrets: []string{}, Settings: []settingJSON{}, NotCarried: []otherFlagJSON{},
		}
		for _, s := range p.Secrets {
			j.Secrets = append(j.Secrets, s.String())
		}
		for _, s := range p.Flags.Settings {
			j.Settings = append(j.Settings, settingJSON(s))
		}
		for _, f := range p.notCarriedOver() {
			j.NotCarried = append(j.NotCarried, otherFlagJSON(f))
		}
		if p.Driver != "" {
			j.Lease.Name = registry.LeaseName(p.Driver)
		}
		if p.Adoptable() && p.Options.Mode == ModeProxy {
			j.Proxy = &proxyJSON{Name: p.Base(), Port: p.Ports.Listen, HealthPort: p.Ports.Health, Endpoint: p.endpoint(), Entry: p.Entry()}
		}
		all = append(all, j)
	}
	text, err := json.MarshalIndent(map[string]any{"attachers": all}, "", "  ")
	return append(terminal.JSON(text), '\n'), err
}

// notNil returns a list that is not nil: programs expect [], not null.
func notNil[T any](all []T) []T { return append([]T{}, all...) }
