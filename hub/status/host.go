package status

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// onLoopback serves requests to loopback addresses only. In a Pod these come from the Pod itself, and from users who may
// forward its ports: for all others the right to port-forward is the authorization.
func onLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isToLoopback(r) {
			sendError(w, http.StatusNotFound, "only metrics and probes are served on this address: use kubectl port-forward for the status page, the API and profiles")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isToLoopback reports whether the local address of the request's connection is a loopback address.
func isToLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.IsLoopback()
}

// checkHost rejects requests to a loopback address whose Host is a name of somebody else. A page of a website could
// resolve its own name to 127.0.0.1 (DNS rebinding), and read what a port-forward on the user's machine serves. Others
// than users of that machine reach the other addresses anyway, by any name.
func checkHost(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isToLoopback(r) && !isOwnHost(r.Host, allowed) {
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
