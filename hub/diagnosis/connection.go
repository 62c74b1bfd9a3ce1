package diagnosis

import "strings"

// Refusal is why a driver cannot be called.
type Refusal struct {
	Verdict Verdict
	action  string // {endpoint} stands for where the driver should answer
}

// refusals are known errors of connecting to a driver, by words in their text: they come from
// the operating system, from TLS and from gRPC, which have no common type.
var refusals = []struct {
	words []string // in small letters; one of them is enough
	Refusal
}{
	{[]string{"no such file"}, Refusal{SocketMissing, "The socket {endpoint} is missing: check that the driver's controller runs, that it makes its socket there, and that its directory is mounted into the hub's Pod."}},
	{[]string{"permission denied"}, Refusal{CannotConnect, "The hub may not open {endpoint}: check the socket's owner and mode, and the user that the hub runs as."}},
	{[]string{"connection refused"}, Refusal{CannotConnect, "Nothing listens at {endpoint}: check that the driver's controller runs and has not crashed; a socket may be left over from an earlier run."}},
	{[]string{"no such host"}, Refusal{CannotConnect, "The host name in {endpoint} is not known: check the Service and its namespace."}},
	{[]string{"tls", "x509", "certificate"}, Refusal{CannotConnect, "Check the TLS files of both sides: the message says which side does not trust which."}},
	{[]string{"timeout", "deadline", "i/o"}, Refusal{CannotConnect, "Nothing answers at {endpoint} in time: check the driver's controller, its load, and NetworkPolicies on the way."}},
	{[]string{"not ready"}, Refusal{DriverNotReady, "The driver says itself that it is not ready: its log says why."}},
}

// ParseRefusal returns what the error of connecting to a driver means.
func ParseRefusal(text string) Refusal {
	text = strings.ToLower(text)
	for _, r := range refusals {
		for _, word := range r.words {
			if strings.Contains(text, word) {
				return r.Refusal
			}
		}
	}
	return Refusal{CannotConnect, "Look at the log of the driver's controller, which should answer at {endpoint}."}
}

// Action returns what to do about a driver that should answer at an endpoint.
func (r Refusal) Action(endpoint string) string {
	return strings.ReplaceAll(r.action, "{endpoint}", endpoint)
}
