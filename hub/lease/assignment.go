package lease

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// assignment says which member should serve a driver.
type assignment struct {
	owner   string // identity; "" if no member can call the driver
	since   time.Time
	certain bool // all members can call the driver, so no other member is waited for
}

// assign returns the owner of each driver that any member can call. Each replica computes the
// same from the same members, whatever their order.
//
// It is rendezvous hashing: the owner is the member that can call the driver and hashes
// highest together with it. So a member that joins or leaves moves only the drivers that it
// gets or had. A member at its limit (maxDrivers) is passed over, which now and then moves
// another driver.
func assign(members []Member) map[string]string {
	callers := map[string][]string{} // identities by driver
	serving := 0
	for _, m := range members {
		if len(m.Drivers) > 0 {
			serving++
		}
		for _, d := range m.Drivers {
			callers[d] = append(callers[d], m.Identity)
		}
	}
	most := maxDrivers(len(callers), serving)
	owners, load := map[string]string{}, map[string]int{}
	for _, d := range slices.Sorted(maps.Keys(callers)) {
		first, owner := "", ""
		for _, id := range callers[d] {
			if before(id, first, d) {
				first = id
			}
			if load[id] < most && before(id, owner, d) {
				owner = id
			}
		}
		if owner == "" { // all that can call the driver are at their limit, and it must be served
			owner = first
		}
		owners[d] = owner
		load[owner]++
	}
	return owners
}

// maxDrivers returns how many drivers a member gets at most: half as many again as if they
// were shared evenly.
func maxDrivers(drivers, members int) int {
	if members == 0 {
		return 0
	}
	return (3*drivers + 2*members - 1) / (2 * members)
}

// before reports whether a ranks before b for the driver. The empty identity ranks last.
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
