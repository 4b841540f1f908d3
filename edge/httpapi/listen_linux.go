package httpapi

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mostUnsent is how much of what is written waits in a socket until its client has room for it.
const mostUnsent = 128 << 10

// writeSoon has writes to a connection go on as its client takes what comes: a socket's buffer grows
// to megabytes, of which a third must be free before a write does, for which a slow client takes
// longer than he may be silent for.
func writeSoon(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, mostUnsent) // else slow clients have less time
	})
}

// lockFolder waits until no other process holds a folder, for a second at most, and holds it until
// unlock is called: anybody who may read it may hold it for as long as he likes.
func lockFolder(path string) (unlock func()) {
	dir, err := os.Open(path)
	if err != nil {
		return func() {}
	}
	for range 100 {
		if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil || !errors.Is(err, unix.EWOULDBLOCK) { // or a file system has no locks
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { _ = dir.Close() }
}
