package registry

import (
	"fmt"
	"regexp"
	"strings"
)

// EndpointPattern allows endpoints: an endpoint in which '*' stands for anything
// within one part. A part of a path ends at '/', one of a TCP address at '.' and at
// ':', so that tcp://*.storage.svc:9443 allows one name in front of the dot. "/*" at
// the end of a path allows all that is below, however deep.
//
// Endpoints have one spelling each (ParseEndpoint), so that none gets past a
// pattern with "..".
type EndpointPattern string

// check returns an error for a bad pattern, which says what to write instead.
func (p EndpointPattern) check() error {
	// What the pattern allows must be something that ParseEndpoint takes.
	if err := checkEndpoint(p.sample()); err != nil {
		return fmt.Errorf("%s is not a valid pattern: %w", quote(string(p)), err)
	}
	return nil
}

// allowedEndpoints is a list of patterns.
func allowedEndpoints() kind[[]EndpointPattern] {
	k := list("a list of patterns like unix:///csi/*", func(s string) error { return EndpointPattern(s).check() },
		pattern(`^(unix:///.|tcp://.)`).with("an endpoint with * in it"), func(all []string) (patterns []EndpointPattern) {
			for _, s := range all {
				patterns = append(patterns, EndpointPattern(s))
			}
			return patterns
		})
	k.schema = k.schema.with("the only endpoints that a CSIDriver object may name")
	return k
}

// sample puts something in the place of each '*'.
func (p EndpointPattern) sample() string {
	s := string(p)
	if port := strings.LastIndexByte(s, ':'); strings.HasPrefix(s, tcpScheme) {
		return strings.ReplaceAll(s[:port], "*", "a") + strings.ReplaceAll(s[port:], "*", "1")
	}
	return strings.ReplaceAll(s, "*", "a")
}

// Allows reports whether an endpoint that ParseEndpoint took is allowed.
func (p EndpointPattern) Allows(e Endpoint) bool {
	rest, below, anything := string(p), "", `[^/]*`
	if !strings.HasPrefix(rest, unixScheme) {
		anything = `[^/.:\[\]]*`
	} else if strings.HasSuffix(rest, "/*") {
		rest, below = strings.TrimSuffix(rest, "*"), `.+`
	}
	form := strings.ReplaceAll(regexp.QuoteMeta(rest), `\*`, anything) + below
	return regexp.MustCompile(`(?s)\A` + form + `\z`).MatchString(string(e))
}
