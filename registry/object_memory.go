package registry

import "slices"

// maxDeleted bounds how many deleted CSIDriver objects are remembered: objects with names
// of their own may come and go for as long as the process lives.
const maxDeleted = 1000

// objectMemory remembers the drivers whose CSIDriver object was deleted while this process
// ran. An object that is deleted, or made anew by an upgrade of the driver, must not leave
// volumes attached that nobody can detach: the object alone said where the driver listens.
type objectMemory struct {
	seen    []Driver // the last set of drivers that have an object
	deleted []Driver // as they were last seen, with WindDown; the latest deletion is the last
}

// withDeleted takes in the drivers that have an object now, and returns them with those
// whose object was deleted.
func (m *objectMemory) withDeleted(now []Driver) []Driver {
	exists := make(map[string]bool, len(now))
	for _, d := range now {
		exists[d.Name] = true
	}
	m.deleted = slices.DeleteFunc(m.deleted, func(d Driver) bool { return exists[d.Name] })
	for _, d := range m.seen {
		if !exists[d.Name] {
			d.WindDown, d.Source = true, "CSIDriver "+d.Name+" (deleted)"
			m.deleted = append(m.deleted, d)
		}
	}
	m.seen = now
	m.deleted = slices.Delete(m.deleted, 0, max(0, len(m.deleted)-maxDeleted))
	return slices.Concat(now, m.deleted)
}
