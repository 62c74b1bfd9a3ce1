package adopt

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/fnv"
	"strings"
)

const (
	// maxBase bounds a base name: with the longest suffix it is still a DNS label (63), and with "-ca" a common
	// name of a certificate (64).
	maxBase    = 50
	basePrefix = "attach-hub-"
	// DefaultHubNamespace and hubName are those of deploy/base.
	DefaultHubNamespace = "csi-attach-hub"
	hubName             = "csi-attach-hub"
	// proxyLabel is on all Pods with a proxy. driverLabelPrefix and the driver's name are on those of the driver.
	proxyLabel        = "attach-hub/proxy"
	driverLabelPrefix = "driver.attach-hub/"
	// hubCA is the ConfigMap with the hub's authority in the namespace of a driver.
	hubCA = "attach-hub-ca"
	// DriverCAs is the ConfigMap with the authorities of the drivers in the namespace of the hub.
	driverCAs = "csi-attach-hub-driver-cas"
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

// Ports are those of a proxy.
type Ports struct{ Listen, Health int32 }

// podPorts returns the ports of the nth proxy of a Pod that has a network of its own.
func podPorts(n int) Ports { return Ports{Listen: int32(9443 + n), Health: int32(9809 + n)} }

// hostPorts returns ports on the node's network. They depend on the driver alone, so that they stay the same when
// another driver is adopted. They are below the ports that Kubernetes and Linux choose from by themselves (30000
// and above).
func hostPorts(driver string) Ports {
	h := fnv.New32a()
	h.Write([]byte(driver))
	first := int32(19000 + 2*(h.Sum32()%500))
	return Ports{Listen: first, Health: first + 1}
}
