package adopt

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// maxBase bounds a base name: with the longest suffix it is still a DNS label (63), and with "-ca" a common
	// name of a certificate (64).
	maxBase    = 50
	basePrefix = "attach-hub-"
	// DefaultHubNamespace and hubName are those of the hub's own Deployment.
	DefaultHubNamespace = "csi-attach-hub"
	hubName             = "csi-attach-hub"
	proxyName           = "csi-attach-proxy"
	hubProgram          = "/csi-attach-hub" // in the image
)

// DefaultImage returns the image that a mode puts beside a driver.
func DefaultImage(mode Mode) string {
	if mode == ModeDropIn {
		return hubName
	}
	return proxyName
}

// HasRegistry reports whether the image names a registry, without which nodes can hardly pull it.
func (o Options) HasRegistry() bool { return strings.Contains(o.Image, "/") }

// Base returns the name of the objects on the driver's side, a DNS label of at most 50 characters.
func Base(driver string) string {
	base := basePrefix + strings.ToLower(strings.ReplaceAll(driver, ".", "-"))
	if len(base) <= maxBase {
		return base
	}
	sum := sha256.Sum256([]byte(driver))
	return strings.TrimRight(base[:maxBase-9], "-") + "-" + hex.EncodeToString(sum[:4])
}

// DriverLabel is the label of the driver's Pods with a proxy.
func (p Plan) DriverLabel() string { return "driver.attach-hub/" + p.Driver }
