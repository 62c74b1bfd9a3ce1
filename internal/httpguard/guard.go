// Package httpguard keeps other websites from what a program serves to people on a loopback address.
package httpguard

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Policy lets a page load only the hub's own files. No inline script or style runs, even if one passes the escaping
// of the templates.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Guard rejects all methods but GET and HEAD, and sets headers by which browsers only show the answer.
//
// It also rejects requests to a loopback address whose Host is a name of somebody else. A page of a website could
// resolve its own name to 127.0.0.1 (DNS rebinding), and read what a port-forward on the user's machine serves. Others
// than users of that machine reach the other addresses anyway, by any name.
func Guard(allowed []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", Policy)
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			Reject(w, Failure{http.StatusMethodNotAllowed, "only GET and HEAD are served: nothing can be changed here"})
		case IsToLoopback(r) && !isOwnHost(r.Host, allowed):
			Reject(w, Failure{http.StatusMisdirectedRequest, fmt.Sprintf("the host %q is not served on a loopback address: use localhost or an IP address, or name the host in --http-allowed-hosts of the hub", r.Host)})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// IsToLoopback reports whether the local address of the request's connection is a loopback address.
func IsToLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.IsLoopback()
}

// ownName is localhost, or the name that the commands use in their port-forward. A website has no such name.
var ownName = regexp.MustCompile(`^(localhost|csi-attach-hub\.[^.]+\.svc)$`)

// isOwnHost reports whether the Host of a request, which may have a port, names this machine or is allowed.
func isOwnHost(host string, allowed []string) bool {
	name := strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
	_, err := netip.ParseAddr(name)
	return err == nil || ownName.MatchString(name) || slices.ContainsFunc(allowed, func(a string) bool { return strings.EqualFold(name, a) })
}

// Failure is why a request has no other answer.
type Failure struct {
	Code int    `json:"-"` // of HTTP
	Text string `json:"error"`
}

// Reject answers with a Failure.
func Reject(w http.ResponseWriter, f Failure) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(f) // the client may have left
}
