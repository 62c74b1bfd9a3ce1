package registry

import (
	"os"
	"time"
)

// socket is one socket of a glob.
type socket struct {
	endpoint Endpoint
	file     os.FileInfo   // as it was seen last
	name     string        // of the driver that answered last; "" if none ever has
	tried    bool          // it was asked, and that has ended
	asking   bool          // it is being asked
	askAt    time.Time     // when it is to be asked next
	delay    time.Duration // after the last failure; doubles with each
	goneAt   time.Time     // since when it is gone; zero while it is there
}

// question is a socket to be asked, with the file that it is then.
type question struct {
	*socket
	file os.FileInfo
}

// see takes in which sockets there are now.
func (s sockets) see(found map[Endpoint]os.FileInfo, now time.Time, o SocketOptions) {
	for endpoint, file := range found {
		one := s[endpoint]
		if one == nil {
			s[endpoint] = &socket{endpoint: endpoint, file: file, askAt: now}
			continue
		}
		if !one.goneAt.IsZero() || !sameSocket(one.file, file) {
			// Another process, perhaps of another driver.
			one.askAt, one.delay = now, 0
		}
		one.file, one.goneAt = file, time.Time{}
	}
	for endpoint, one := range s {
		if found[endpoint] != nil {
			continue
		}
		if one.goneAt.IsZero() {
			one.goneAt = now
		}
		if one.name == "" || now.Sub(one.goneAt) >= o.Away {
			delete(s, endpoint)
		}
	}
}

// sameSocket says whether a socket was not made anew. The number of a file alone
// may be given again at once.
func sameSocket(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// toAsk returns the sockets whose time has come, and takes them for being asked.
func (s sockets) toAsk(now time.Time) []question {
	var due []question
	for _, one := range s {
		if one.asking || !one.goneAt.IsZero() || now.Before(one.askAt) {
			continue
		}
		one.asking = true
		due = append(due, question{socket: one, file: one.file})
	}
	return due
}

// hear takes in what came of asking a socket.
func (s sockets) hear(a answer, now time.Time, o SocketOptions) {
	one := a.from
	one.asking = false
	if s[one.endpoint] != one {
		return // it is gone for good
	}
	one.tried = true
	if !sameSocket(a.file, one.file) {
		one.askAt = now // the answer is of a process that has ended
		return
	}
	if a.err != nil {
		one.delay = min(max(2*one.delay, o.Poll), o.AskAgain)
		one.askAt = now.Add(one.delay)
		return
	}
	one.name, one.delay, one.askAt = a.name, 0, now.Add(o.AskAgain)
}

// unknown says whether there is a socket of which nothing was heard yet.
func (s sockets) unknown() bool {
	for _, one := range s {
		if !one.tried {
			return true
		}
	}
	return false
}
