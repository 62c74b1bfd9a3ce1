package diagnosis

import (
	"cmp"
	"slices"
	"strings"
)

// refusals are known errors of connecting to a driver, by words in their text: they come from
// the operating system, from TLS and from gRPC, which have no common type.
var refusals = []struct {
	words   []string // in small letters; one of them is enough
	verdict Verdict
	action  string // {endpoint} stands for where the driver should answer, {source} for what says so
}{
	{[]string{"proxy cannot open", "and hung up then"}, CannotConnect, "Look at the log of the proxy beside the driver at {endpoint}: it says why the proxy does not reach the driver, and what to do."},
	{[]string{"certificate of the server has expired"}, CertificateExpired, "Renew the certificate with which the driver's side answers at {endpoint}."},
	{[]string{" expired at ", "it has expired: renew it"}, CertificateExpired, "Renew the client certificate of the hub, which tls.certFile of the driver names."},
	{[]string{"and not for servername"}, CertificateName, "Set tls.serverName of the driver in drivers.yaml to a name of that certificate if it is the driver's, or issue the certificate for the name."},
	{[]string{"no such file"}, SocketMissing, "Check that the driver's controller runs, that it creates the socket {endpoint}, and that the directory of the socket is mounted into the hub's Pod, or correct the endpoint ({source})."},
	{[]string{"permission denied"}, CannotConnect, "Check the owner and the mode of {endpoint}, and the user that the hub runs as: the hub may not open it."},
	{[]string{"connection refused"}, CannotConnect, "Check that the driver's controller runs and does not crash, or correct the endpoint ({source}): nothing listens at {endpoint}."},
	{[]string{"no such host"}, CannotConnect, "Check the Service and its namespace, or correct the endpoint ({source}): the host name in {endpoint} cannot be resolved."},
	{[]string{"tls", "x509", "certificate"}, CannotConnect, "Check the TLS files of both sides: the message says which side does not trust the other one."},
	{[]string{"timeout", "deadline", "i/o"}, CannotConnect, "Check the driver's controller, its load, and the NetworkPolicies on the way, or correct the endpoint ({source}): nothing answers at {endpoint} in time."},
	{[]string{"not ready", "code = failedprecondition"}, DriverNotReady, "Look at the log of the driver's controller: the driver reports that it is not ready."},
}

// ParseRefusal returns what the error of connecting to a driver at an endpoint means, and what to do. source is
// where the endpoint was learned, "drivers.yaml:3".
func ParseRefusal(text, endpoint, source string) (Verdict, string) {
	verdict, action := CannotConnect, "Look at the log of the driver's controller, which should answer at {endpoint}."
	text = strings.ToLower(text)
	for _, r := range refusals {
		if slices.ContainsFunc(r.words, func(word string) bool { return strings.Contains(text, word) }) {
			verdict, action = r.verdict, r.action
			break
		}
	}
	if strings.Contains(text, "connection refused") && strings.HasPrefix(endpoint, "unix:") {
		action += " The socket may be left over from an earlier run."
	}
	return verdict, strings.NewReplacer("{endpoint}", endpoint, "{source}", cmp.Or(source, "the configuration")).Replace(action)
}
