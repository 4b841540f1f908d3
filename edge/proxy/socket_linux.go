package proxy

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged is how many of the bytes that were written the other side's TCP has not
// acknowledged; 0 where that is not known.
func unacknowledged(c net.Conn) int {
	of, ok := c.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		if n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err != nil {
			n = 0
		}
	})
	return n
}

// mostUnsent is how much of what is written waits in a socket; see httpapi.
const mostUnsent = 128 << 10

// leaveDead has a socket's connection end once what was sent is not acknowledged for so long, and
// writes to it go on as the upstream takes what comes.
func leaveDead(socket syscall.RawConn, after time.Duration) {
	_ = socket.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, mostUnsent)               // else slow upstreams have less time
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds())) // else it takes longer
	})
}
