package adopt

import (
	"fmt"
	"strings"
)

const driversHead = "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\n"

// DriversFile returns a drivers.yaml for the hub's own Deployment with the entries of the adoptable plans. Drivers that
// move in another mode have none there.
func DriversFile(plans []Plan) []byte {
	var b strings.Builder
	for _, p := range plans {
		if p.Adoptable() && p.Options.Mode == ModeProxy {
			b.WriteString(p.Entry())
		}
	}
	if b.Len() == 0 {
		return []byte(driversHead + "drivers: []\n")
	}
	return []byte(driversHead + "drivers:\n" + b.String())
}

// Entry returns the driver's entry of drivers.yaml, as an item of the list drivers. The driver begins in mode observe.
// It is "" in place of a csi-attacher, where flags say all.
func (p Plan) Entry() string {
	if p.Options.Mode == ModeDropIn {
		return ""
	}
	if p.Options.Mode == ModeSidecarHub {
		return p.entry("observe # active in the step of that name")
	}
	return p.entry("observe # until you hand the driver over")
}

// endpoint is where the hub reaches the driver.
func (p Plan) endpoint() string {
	if p.Options.Mode == ModeSidecarHub {
		return "unix://" + p.hubSocket()
	}
	return fmt.Sprintf("tcp://%s.%s.svc:%d", p.Base(), p.Workload.Namespace, p.Ports.Listen)
}

func (p Plan) entry(mode string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	fmt.Fprintf(&b, "  - name: %s\n", yamlString(p.Driver))
	line("endpoint: %s", yamlString(p.endpoint()))
	if p.Options.Mode == ModeProxy {
		line("tls: {caFile: /tls/%s.crt, certFile: /tls/tls.crt, keyFile: /tls/tls.key, serverName: %s}", p.Driver, p.Base())
	}
	line("mode: %s", mode)
	if p.Flags.LeaderElection {
		line("lease: {namespace: %s} # of csi-attacher's Lease", yamlString(p.LeaseNamespace()))
	} else { // said, because validate warns of an active entry that leaves it open
		line(`lease: {namespace: ""} # csi-attacher takes no Lease: the hub's is in its own namespace`)
	}
	for _, group := range grouped(p.Flags.Settings) {
		if group.key == "" {
			s := group.settings[0]
			line("%s: %s # %s", s.Key, s.Value, s.Flag)
			continue
		}
		line("%s:", group.key)
		for _, s := range group.settings {
			line("  %s: %s # %s", s.Key[len(group.key)+1:], s.Value, s.Flag)
		}
	}
	return b.String()
}

// settingGroup are the settings of one mapping of drivers.yaml; key is "" for a setting of the entry itself.
type settingGroup struct {
	key      string
	settings []Setting
}

// grouped puts the settings of a mapping together, in the order of their first.
func grouped(settings []Setting) []settingGroup {
	var groups []settingGroup
next:
	for _, s := range settings {
		key, _, nested := strings.Cut(s.Key, ".")
		if !nested {
			groups = append(groups, settingGroup{"", []Setting{s}})
			continue
		}
		for i := range groups {
			if groups[i].key == key {
				groups[i].settings = append(groups[i].settings, s)
				continue next
			}
		}
		groups = append(groups, settingGroup{key, []Setting{s}})
	}
	return groups
}
