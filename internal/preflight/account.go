package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
)

// accountFacts is what is known of the rights of this process for a driver.
type accountFacts struct {
	leaseFacts
	elsewhere bool           // the lease is outside of the hub's namespace
	missing   []rights.Right // on the lease, if it is elsewhere
	rightsErr error
	// Of the Secrets that volumes of the driver name:
	secrets     int                      // there are so many
	denied      []corev1.SecretReference // that this process may not read
	notAsked    int
	secretError error
}

// checkRights checks the rights on what the driver has of its own. A missing optional right is a warning.
func checkRights(missing []rights.Right, err error, granted string) Check {
	const name = "rights"
	if err != nil {
		return failed(name, err.Error(), "Check the API server and the NetworkPolicies on the way.")
	}
	if len(missing) == 0 {
		return ok(name, granted)
	}
	required := slices.ContainsFunc(missing, func(r rights.Right) bool { return !r.Optional })
	var texts, purposes, manifests []string
	for _, r := range missing {
		texts = append(texts, r.String())
		purposes = appendNew(purposes, r.Purpose)
		manifests = appendNew(manifests, r.Manifest)
	}
	reason := "missing: " + strings.Join(texts, ", ") + "; needed to " + strings.Join(purposes, "; ")
	action := "Grant them: " + strings.Join(manifests, ", ") + "."
	if required {
		return failed(name, reason, action)
	}
	return warning(name, reason+"; the hub attaches and detaches without them", action)
}

func appendNew(all []string, s string) []string {
	if slices.Contains(all, s) {
		return all
	}
	return append(all, s)
}

// checkSecrets checks that this process may read the Secrets that volumes of the driver name.
func checkSecrets(f accountFacts) Check {
	const name = "secrets"
	switch {
	case f.secretError != nil:
		return failed(name, f.secretError.Error(), "Check the API server and the NetworkPolicies on the way.")
	case f.secrets == 0:
		return ok(name, "no volume of the driver names a Secret for attaching")
	case len(f.denied) > 0:
		first := f.denied[0].Namespace + "/" + f.denied[0].Name
		action := diagnosis.Cause{Verdict: diagnosis.SecretForbidden}.Action("", "", "read secret "+first+" for the call: ")
		return failed(name, fmt.Sprintf("%d of %d Secrets may not be read, for example %s%s", len(f.denied), f.secrets, first, f.rest()), action)
	case f.notAsked > 0:
		return warning(name, fmt.Sprintf("%d of %d Secrets may be read%s", f.secrets-f.notAsked, f.secrets, f.rest()),
			"Check the right on the others: kubectl auth can-i get secret/NAME -n NAMESPACE, with --as and the hub's ServiceAccount.")
	}
	return ok(name, fmt.Sprintf("%d of %d Secrets may be read", f.secrets, f.secrets))
}

func (f accountFacts) rest() string {
	if f.notAsked == 0 {
		return ""
	}
	return fmt.Sprintf("; %d were not checked: the limit is %d for each driver", f.notAsked, maxSecrets)
}
