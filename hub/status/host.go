package status

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// IsLoopback reports whether only this machine can reach an address to listen on: in a Pod, only the Pod
// and users who may forward its ports.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// checkHost rejects requests to a loopback address whose Host is a name of somebody else. A page of a website could
// resolve its own name to 127.0.0.1 (DNS rebinding), and read what a port-forward on the user's machine serves. Others
// than users of that machine reach the other addresses anyway, by any name.
func checkHost(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if local != nil && local.IP.IsLoopback() && !isOwnHost(r.Host, allowed) {
			sendError(w, http.StatusMisdirectedRequest, fmt.Sprintf("the host %q is not served on a loopback address: use localhost or an IP address, or name the host in --http-allowed-hosts of the hub", r.Host))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isOwnHost reports whether the Host of a request, which may have a port, names this machine, is the name that the commands
// use in their port-forward, or is allowed. A website has no such name.
func isOwnHost(host string, allowed []string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil || name == "localhost" {
		return true
	}
	namespace, ok := strings.CutPrefix(name, "csi-attach-hub.")
	namespace, svc := strings.CutSuffix(namespace, ".svc")
	return ok && svc && !strings.Contains(namespace, ".") ||
		slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(name, a) })
}
