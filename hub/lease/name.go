package lease

import "strings"

// Name says which Lease object.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// replicaPrefix begins the names of the Leases by which replicas announce themselves.
const replicaPrefix = "csi-attach-hub-replica-"

// maxNameLength is that of a DNS subdomain, which names of Leases are.
const maxNameLength = 253

// replicaName is the name of the Lease by which a replica announces itself.
func replicaName(identity string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(identity))
	// The end of an identity is what makes it unique.
	name = name[max(0, len(name)-(maxNameLength-len(replicaPrefix))):]
	if strings.HasSuffix(name, "-") {
		name = name[:len(name)-1] + "x"
	}
	return replicaPrefix + name
}
