package lease

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// share says who should serve which driver: the identity of one member for each
// driver that any of them is able to serve. Each process computes the same from
// the same members, whatever their order.
//
// It is rendezvous hashing: each driver belongs to the able member that hashes
// highest together with it, so that a member that comes or goes moves only what
// it gets or had. A member that has its fill (see fill) is passed over, which now and then
// moves a driver more.
func share(members []Member) map[string]string {
	able := map[string][]string{} // driver to identities
	serving := 0
	for _, m := range members {
		if len(m.Drivers) > 0 {
			serving++
		}
		for _, d := range m.Drivers {
			able[d] = append(able[d], m.Identity)
		}
	}
	most := fill(len(able), serving)
	owners, load := map[string]string{}, map[string]int{}
	for _, d := range slices.Sorted(maps.Keys(able)) {
		first, owner := "", ""
		for _, id := range able[d] {
			if before(id, first, d) {
				first = id
			}
			if load[id] < most && before(id, owner, d) {
				owner = id
			}
		}
		if owner == "" { // all that are able have their fill, and it must be served
			owner = first
		}
		owners[d] = owner
		load[owner]++
	}
	return owners
}

// fill is how many drivers one member gets at most: half as many again as if
// they were shared evenly.
func fill(drivers, members int) int {
	if members == 0 {
		return 0
	}
	return (3*drivers + 2*members - 1) / (2 * members)
}

// before reports whether a comes before b for the driver; anybody comes before nobody.
func before(a, b, driver string) bool {
	if b == "" {
		return true
	}
	wa, wb := weight(a, driver), weight(b, driver)
	return wa > wb || wa == wb && a > b
}

func weight(identity, driver string) uint64 {
	sum := sha256.Sum256([]byte(identity + "\x00" + driver))
	return binary.BigEndian.Uint64(sum[:])
}
