package registry

import "slices"

// maxDeleted bounds how many deleted CSIDriver objects are remembered: objects with names
// of their own may come and go for as long as the process lives.
const maxDeleted = 1000

// deletedObjects are the drivers whose CSIDriver object was deleted while this process
// ran, as they were last seen and with WindDown; the latest deletion is the last one. An
// object that is deleted, or made anew by an upgrade of the driver, must not leave
// volumes attached that nobody can detach: the object alone said where the driver listens.
type deletedObjects []Driver

// follow takes the next set of drivers that have an object.
func (o *deletedObjects) follow(before, now []Driver) {
	there := make(map[string]bool, len(now))
	for _, d := range now {
		there[d.Name] = true
	}
	kept := slices.DeleteFunc(slices.Clone(*o), func(d Driver) bool { return there[d.Name] })
	for _, d := range before {
		if !there[d.Name] {
			d.WindDown, d.Source = true, "CSIDriver "+d.Name+" (deleted)"
			kept = append(kept, d)
		}
	}
	*o = kept[max(0, len(kept)-maxDeleted):]
}
