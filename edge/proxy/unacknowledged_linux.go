package proxy

import (
	"net"
	"syscall"

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
