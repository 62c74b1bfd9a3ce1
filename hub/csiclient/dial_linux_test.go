package csiclient

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMachineThatIsGoneIsFoundOutWithinHalfAMinute(t *testing.T) {
	d := startTCPDriver(t, nil)
	conn, err := connectRaw(testContext(t), d.endpoint)
	must(t, err)
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	must(t, err)
	for option, want := range map[int]int{
		unix.TCP_KEEPIDLE: 15, unix.TCP_KEEPINTVL: 5, unix.TCP_KEEPCNT: 3,
	} {
		var got int
		var failed error
		if err := raw.Control(func(fd uintptr) { got, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option) }); err != nil || failed != nil {
			t.Fatal(err, failed)
		}
		if got != want {
			t.Errorf("socket option %d is %d, want %d", option, got, want)
		}
	}
}
