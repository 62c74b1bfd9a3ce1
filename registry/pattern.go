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
type EndpointPattern struct {
	text string
	form *regexp.Regexp
}

// ParseEndpointPattern checks a pattern as a person writes it. Its error says what
// to write instead.
func ParseEndpointPattern(s string) (EndpointPattern, error) {
	// What the pattern allows must be something that ParseEndpoint takes.
	if _, err := ParseEndpoint(sample(s)); err != nil {
		return EndpointPattern{}, fmt.Errorf("%s is not a valid pattern: %w", quote(s), err)
	}
	anything := `[^/]*`
	if !strings.HasPrefix(s, unixScheme) {
		anything = `[^/.:\[\]]*`
	}
	rest, below := s, ""
	if strings.HasPrefix(s, unixScheme) && strings.HasSuffix(s, "/*") {
		rest, below = strings.TrimSuffix(s, "*"), `.+`
	}
	form := strings.ReplaceAll(regexp.QuoteMeta(rest), `\*`, anything) + below
	return EndpointPattern{text: s, form: regexp.MustCompile(`(?s)\A` + form + `\z`)}, nil
}

// allowedEndpoints is a list of patterns.
func allowedEndpoints() kind[[]EndpointPattern] {
	check := func(s string) error {
		_, err := ParseEndpointPattern(s)
		return err
	}
	k := list("a list of patterns like unix:///csi/*", check, pattern(`^(unix:///.|tcp://.)`).with("an endpoint with * in it"),
		func(all []string) (patterns []EndpointPattern) {
			for _, s := range all {
				p, _ := ParseEndpointPattern(s) // was checked
				patterns = append(patterns, p)
			}
			return patterns
		})
	k.schema = k.schema.with("the only endpoints that a CSIDriver object may name")
	return k
}

// sample puts something in the place of each '*'.
func sample(pattern string) string {
	if port := strings.LastIndexByte(pattern, ':'); strings.HasPrefix(pattern, tcpScheme) {
		return strings.ReplaceAll(pattern[:port], "*", "a") + strings.ReplaceAll(pattern[port:], "*", "1")
	}
	return strings.ReplaceAll(pattern, "*", "a")
}

// Allows reports whether an endpoint that ParseEndpoint took is allowed.
func (p EndpointPattern) Allows(e Endpoint) bool {
	return p.form != nil && p.form.MatchString(string(e))
}

// String is the pattern as it was written.
func (p EndpointPattern) String() string { return p.text }
