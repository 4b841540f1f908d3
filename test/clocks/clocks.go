// Package clocks has, for tests, the clocks of machines that are set while a program runs.
package clocks

import (
	"time"
	"unsafe"
)

// Machine is a machine's clock: what time.Now returns there, with its monotonic reading.
type Machine struct {
	began time.Time
	Set   time.Duration // by how much it was, in whole seconds, since it began
}

// Begin is a machine whose clock is right.
func Begin() *Machine { return &Machine{began: time.Now()} }

// True is the time so long after it began, in ns since 1970.
func (m *Machine) True(d time.Duration) int64 { return m.began.Add(d).UnixNano() }

// After is what time.Now returns so long after it began.
func (m *Machine) After(d time.Duration) time.Time {
	now := m.began.Add(d)
	// A time with a monotonic reading has its seconds since 1885 above the lowest thirty
	// bits of its first word (time.Time, "wall").
	*(*uint64)(unsafe.Pointer(&now)) += uint64(m.Set/time.Second) << 30
	return now
}
