package registry

// claims are what no two drivers can share, with the first who has it: a driverName, a
// sanitized name, a Lease, an Endpoint.
type claims[T any] map[any]T

type (
	driverName string
	sanitized  string
)

func sanitizedName(driver string) sanitized { return sanitized(SanitizedName(driver)) }

// claim records who has a key, unless somebody has it already, who is returned.
func (c claims[T]) claim(key any, who T) (first T, taken bool) {
	if first, taken = c[key]; !taken {
		c[key] = who
	}
	return first, taken
}
