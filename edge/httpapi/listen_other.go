//go:build !linux

package httpapi

import "net"

// writeSoon does nothing here: a write goes on when the system says so.
func writeSoon(net.Conn) {}

// lockFolder does nothing here: who starts does not do so at once with another.
func lockFolder(string) (unlock func()) { return func() {} }
