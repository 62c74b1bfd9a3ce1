package registry

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func fileInfo(t *testing.T, path string) os.FileInfo {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// The process that answers may have ended meanwhile, and another driver have taken its
// place on the socket.
func TestAnswerOfAProcessThatHasEndedIsNotBelieved(t *testing.T) {
	const endpoint = "unix:///csi.sock"
	dir, now := t.TempDir(), time.Now()
	before, after := fileInfo(t, filepath.Join(dir, "1")), fileInfo(t, filepath.Join(dir, "2"))
	s, o := sockets{}, SocketOptions{Away: time.Minute, AskAgain: time.Minute, Poll: time.Second}
	s.see(map[Endpoint]os.FileInfo{endpoint: before}, now, o)
	first := s.toAsk(now)[0]
	s.see(map[Endpoint]os.FileInfo{endpoint: after}, now, o)
	if due := s.toAsk(now); len(due) > 0 {
		t.Fatal("it is asked twice at once")
	}
	s.hear(answer{from: first.socket, file: first.file, name: "old"}, now, o)
	if got := s.drivers(); len(got) > 0 {
		t.Errorf("the drivers are %v", got)
	}
	second := s.toAsk(now)
	if len(second) != 1 {
		t.Fatal("it is not asked again at once")
	}
	s.hear(answer{from: second[0].socket, file: second[0].file, name: "new"}, now, o)
	if got := s.drivers(); len(got) != 1 || got[0].Name != "new" {
		t.Errorf("the drivers are %v", got)
	}
	// One that is gone for good before it answered is not there again by its answer.
	s.see(map[Endpoint]os.FileInfo{}, now, o)
	s.see(map[Endpoint]os.FileInfo{}, now.Add(time.Hour), o)
	s.hear(answer{from: second[0].socket, file: second[0].file, name: "new"}, now, o)
	if got := s.drivers(); len(got) > 0 {
		t.Errorf("the drivers are %v", got)
	}
}
