package csiclient

import (
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
)

// filePollInterval is how often the files of a connection with TLS are looked at. A
// change is believed at the second look.
const filePollInterval = 10 * time.Second

func pollFiles() (<-chan time.Time, func()) {
	ticker := time.NewTicker(filePollInterval)
	return ticker.C, ticker.Stop
}

// followFiles ends the Session when the files that it was secured with have been
// replaced by others that are whole: the owner connects anew with those. Calls in
// flight end on the old connection. Files that are not whole change nothing, so that
// what works goes on. It returns when the Session is done.
func (s *Session) followFiles(used *tlsfiles.Material, poll func() (<-chan time.Time, func())) {
	ticks, stop := poll()
	defer stop()
	files := tlsfiles.NewFollower(used)
	for {
		select {
		case <-s.done:
			return
		case <-ticks:
		}
		next, err := files.Look()
		if err != nil || next == nil || next.CheckTime(time.Now()) != nil {
			continue // what is wrong shows when somebody connects
		}
		s.finish() // first, so that who is refused a call knows why
		s.Close()
		return
	}
}
