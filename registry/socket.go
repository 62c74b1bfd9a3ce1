package registry

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"
)

// socket is one process that listens on a socket of a glob. When the file is made anew,
// another process listens there: the socket is replaced by another one.
type socket struct {
	endpoint Endpoint
	file     os.FileInfo
	cancel   context.CancelFunc // ends asking it
	name     string             // of the driver that answered last, here or before; "" if none ever has
	answered bool               // with a name or an error
	goneAt   time.Time          // since when the file is gone; zero while it is there
}

// sockets are the sockets of a glob.
type sockets map[Endpoint]*socket

// update takes in which sockets there are now. It returns those that are to be asked from
// now on, and ends the asking of those that are gone. A driver is forgotten when its
// socket has been gone for the time away.
func (s sockets) update(files map[Endpoint]os.FileInfo, now time.Time, away time.Duration) (added []*socket) {
	for endpoint, file := range files {
		before := s[endpoint]
		if before != nil && before.goneAt.IsZero() && isSameSocket(before.file, file) {
			continue
		}
		next := &socket{endpoint: endpoint, file: file}
		if before != nil {
			before.cancel()
			next.name = before.name
		}
		s[endpoint] = next
		added = append(added, next)
	}
	for endpoint, gone := range s {
		if files[endpoint] != nil {
			continue
		}
		if gone.goneAt.IsZero() {
			gone.cancel()
			gone.goneAt = now
		}
		if gone.name == "" || now.Sub(gone.goneAt) >= away {
			delete(s, endpoint)
		}
	}
	return added
}

// isSameSocket reports whether a socket was not made anew. The number of a file alone
// may be given again at once.
func isSameSocket(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// answer takes in what came of asking a socket: the name of a driver, or "". An answer of a
// process that has ended does not count.
func (s sockets) answer(from *socket, name string) {
	if s[from.endpoint] == from && from.goneAt.IsZero() {
		from.answered = true
		from.name = cmp.Or(name, from.name)
	}
}

// allAnswered reports whether every socket has answered.
func (s sockets) allAnswered() bool {
	for _, one := range s {
		if !one.answered {
			return false
		}
	}
	return true
}

// drivers returns the drivers that are known, in order of path.
func (s sockets) drivers() []Driver {
	var drivers []Driver
	for _, endpoint := range slices.Sorted(maps.Keys(s)) {
		if name := s[endpoint].name; name != "" {
			drivers = append(drivers, Driver{Name: name, Endpoint: endpoint, Source: "socket " + endpoint.Address()})
		}
	}
	return drivers
}
