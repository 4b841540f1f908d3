//go:build !linux

package main

import "net"

// unread says that something has come that was not read, where the system tells it: here it is
// not asked.
func unread(net.Conn) bool { return false }
