package lease

// scope is what one watch sees: all Leases of a namespace ("ns"), or one Lease ("ns/name").
type scope string

// scopeOf returns the scope of a Lease, or of a namespace if n has no Name.
func scopeOf(n Name) scope {
	if n.Name == "" {
		return scope(n.Namespace)
	}
	return scope(n.String())
}

func (s scope) contains(n Name) bool { return s == scope(n.Namespace) || s == scopeOf(n) }
