package registry

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// SecretPatterns is a list of patterns for Secrets, NAMESPACE/NAME or NAMESPACE/*, in order and with commas between them:
// Settings must be comparable.
type SecretPatterns string

// newSecretPatterns returns the patterns of lists together.
func newSecretPatterns(patterns []string) SecretPatterns {
	slices.Sort(patterns)
	return SecretPatterns(strings.Join(slices.Compact(patterns), ","))
}

// All returns the patterns.
func (p SecretPatterns) All() []string {
	if p == "" {
		return nil
	}
	return strings.Split(string(p), ",")
}

// match reports whether one of the patterns is for a Secret.
func (p SecretPatterns) match(namespace, name string) bool {
	for pattern := range strings.SplitSeq(string(p), ",") {
		if pattern == namespace+"/"+name || pattern == namespace+"/*" {
			return true
		}
	}
	return false
}

// CheckSecret returns an error if volumes of the driver may not name a Secret: it is not in the driver's list or, for a driver
// without one, in the list of another driver.
func (d Driver) CheckSecret(namespace, name string) error {
	if d.Secrets.match(namespace, name) || d.Secrets == "" && !d.Listed.match(namespace, name) {
		return nil
	}
	where, why := "its entry in drivers.yaml", "it is not in the driver's list"
	if strings.HasPrefix(d.Source, csiDriverOrigin) {
		where = "defaults in drivers.yaml, or give the driver an entry"
	}
	if d.Secrets == "" {
		why = "it is in the list of another driver"
	}
	return fmt.Errorf("volumes of driver %s may not name it, %s: if they should, add %s/%s to secrets of %s", d.Name, why, namespace, name, where)
}

// secretPatterns is a list of patterns for Secrets.
func secretPatterns() valueType[SecretPatterns] {
	k := list("a list of NAMESPACE/NAME or NAMESPACE/*", checkSecretPattern,
		pattern("^"+labelForm+`/(\*|`+subdomainForm+")$").with("NAMESPACE/NAME or NAMESPACE/*"), newSecretPatterns)
	k.write = func(p SecretPatterns) string { return "[" + strings.Join(p.All(), ", ") + "]" }
	return k
}

// checkSecretPattern returns an error for a bad pattern for Secrets.
func checkSecretPattern(s string) error {
	namespace, name, _ := strings.Cut(s, "/")
	if len(validation.IsDNS1123Label(namespace)) > 0 || name != "*" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%s is not the name of a Secret with its namespace: write NAMESPACE/NAME, or NAMESPACE/* for all Secrets of a namespace", quote(s))
	}
	return nil
}
