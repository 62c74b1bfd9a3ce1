package diagnosis

import (
	"slices"
	"strings"
)

// refusals are known errors of connecting to a driver, by words in their text: they come from
// the operating system, from TLS and from gRPC, which have no common type.
var refusals = []struct {
	words   []string // in small letters; one of them is enough
	verdict Verdict
	action  string // {endpoint} stands for where the driver should answer
}{
	{[]string{"no such file"}, SocketMissing, "The socket {endpoint} is missing: check that the driver's controller runs, that it makes its socket there, and that its directory is mounted into the hub's Pod."},
	{[]string{"permission denied"}, CannotConnect, "The hub may not open {endpoint}: check the socket's owner and mode, and the user that the hub runs as."},
	{[]string{"connection refused"}, CannotConnect, "Nothing listens at {endpoint}: check that the driver's controller runs and has not crashed; a socket may be left over from an earlier run."},
	{[]string{"no such host"}, CannotConnect, "The host name in {endpoint} is not known: check the Service and its namespace."},
	{[]string{"tls", "x509", "certificate"}, CannotConnect, "Check the TLS files of both sides: the message says which side does not trust which."},
	{[]string{"timeout", "deadline", "i/o"}, CannotConnect, "Nothing answers at {endpoint} in time: check the driver's controller, its load, and NetworkPolicies on the way."},
	{[]string{"not ready"}, DriverNotReady, "The driver says itself that it is not ready: its log says why."},
}

// ParseRefusal returns what the error of connecting to a driver at an endpoint means, and what to do.
func ParseRefusal(text, endpoint string) (Verdict, string) {
	verdict, action := CannotConnect, "Look at the log of the driver's controller, which should answer at {endpoint}."
	text = strings.ToLower(text)
	for _, r := range refusals {
		if slices.ContainsFunc(r.words, func(word string) bool { return strings.Contains(text, word) }) {
			verdict, action = r.verdict, r.action
			break
		}
	}
	return verdict, strings.ReplaceAll(action, "{endpoint}", endpoint)
}
