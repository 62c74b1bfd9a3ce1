package adopt

import (
	"fmt"
	"strings"
)

// DriversFile returns a drivers.yaml with the entries of the adoptable plans.
func DriversFile(plans []Plan) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers:\n")
	for _, p := range plans {
		if p.Adoptable() {
			b.WriteString(p.Entry())
		}
	}
	return []byte(b.String())
}

// Entry returns the driver's entry of drivers.yaml, as an item of the list drivers. The driver begins in mode observe.
func (p Plan) Entry() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	fmt.Fprintf(&b, "  - name: %s\n", p.Driver)
	line("endpoint: %s", p.endpoint())
	line("tls: {caFile: /tls/%s.crt, certFile: /tls/tls.crt, keyFile: /tls/tls.key, serverName: %s}", p.Driver, p.Base())
	line("mode: observe # until you hand the driver over")
	line("lease: {namespace: %s} # of csi-attacher's Lease", p.LeaseNamespace())
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
