package main

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unread says that something has come over a connection that this edge has not come to read.
func unread(c net.Conn) bool {
	of, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := of.SyscallConn()
	if err != nil {
		return false
	}
	bytes := 0
	err = raw.Control(func(fd uintptr) { bytes, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return err == nil && bytes > 0
}
