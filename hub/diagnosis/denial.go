package diagnosis

import "regexp"

// Denial is a request that RBAC denied.
type Denial struct {
	User        string // "system:serviceaccount:csi-attach-hub:csi-attach-hub"
	Verb        string
	Resource    string
	Subresource string // "" for none
	Group       string // "" for the core group
	Namespace   string // "" if it is not in one
	Name        string // of the object; "" for none
}

// denial is the text of the API server's answer 403 (apiserver, endpoints/handlers/responsewriters). Behind "denied the
// request", a webhook would have written it.
var denial = regexp.MustCompile(`(?:^|: )[a-z0-9.]+ (?:"([^"\s]*)" )?is forbidden: User "([^"\s]+)" cannot ([a-z]+) resource "([a-z]+)(?:/([a-z]+))?" in API group "([a-z0-9.]*)" (?:at the cluster scope|in the namespace "([a-z0-9-]+)")`)

// ParseDenial returns what RBAC denied, from the text of an error of the Kubernetes API, and whether it says so.
func ParseDenial(text string) (Denial, bool) {
	m := denial.FindStringSubmatch(text)
	if m == nil || fromWebhook.MatchString(text) {
		return Denial{}, false
	}
	return Denial{Name: m[1], User: m[2], Verb: m[3], Resource: m[4], Subresource: m[5], Group: m[6], Namespace: m[7]}, true
}

// fromWebhook are words with which the API server repeats the text of a webhook or of an admission policy.
var fromWebhook = regexp.MustCompile(`denied the request|denied request|admission webhook`)
