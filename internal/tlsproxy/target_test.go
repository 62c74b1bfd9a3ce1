package tlsproxy

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSocketThatCannotBeOpenedIsExplainedInTheLogOnceAndInReadiness(t *testing.T) {
	s := newScene(t, nil)
	s.driver.Crash()
	_ = os.Remove(s.options.Target) // what a crash may leave
	h := s.health(10 * time.Second)
	h.until(http.StatusServiceUnavailable, "proxy cannot open unix://"+s.options.Target+": no such file or directory\n")
	s.logged("Check that the driver runs, that --target is the path of its --endpoint")
	s.logged(fmt.Sprintf("uid=%d gid=%d", os.Geteuid(), os.Getegid()))
	s.logged(filepath.Dir(s.options.Target) + " has the mode drwx------, user " + fmt.Sprint(os.Geteuid()))
	if err := os.WriteFile(s.options.Target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.until(http.StatusServiceUnavailable, "connection refused")
	s.logged("nothing listens there")
	_ = os.Remove(s.options.Target)
	s.startDriver()
	h.until(http.StatusOK, "ok")
	s.logged("The driver's socket can be opened now")
	if got := strings.Count(s.log.String(), "Cannot open the driver's socket"); got != 2 {
		t.Errorf("%d lines for two reasons:\n%s", got, s.log)
	}
}

func TestUserWhoMayNotOpenTheSocketIsToldWhoMay(t *testing.T) {
	f := file{path: "/csi/csi.sock", mode: fs.ModeSocket | 0o755, uid: 1000, gid: 5}
	if got := f.String(); got != "/csi/csi.sock has the mode Srwxr-xr-x, user 1000 and group 5" {
		t.Error(got)
	}
	for uid, want := range map[int]string{65532: "Run the proxy as user 1000, who owns /csi/csi.sock", 0: "Run the proxy as user 1000", 1000: "SELinux label"} {
		if got := f.action(syscall.EACCES, uid); !strings.Contains(got, want) {
			t.Errorf("user %d: %s", uid, got)
		}
	}
}
