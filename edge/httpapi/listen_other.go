//go:build !linux

package httpapi

import "net"

// writeSoon does nothing here: a write goes on when the system says so.
func writeSoon(net.Conn) {}
