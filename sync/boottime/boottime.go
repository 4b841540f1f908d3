// Package boottime is a clock for leases: nobody sets it, and it goes on while the
// machine sleeps. Go's monotonic clock stops then, so whoever held something for ten
// seconds when the lid was closed would hold it still when it is opened.
package boottime

import "time"

// Now is the time since some moment, the same for all of this boot of the machine. Where
// the system has no such clock it is Go's monotonic one.
func Now() time.Duration {
	if d, ok := now(); ok {
		return d
	}
	return time.Since(start) + time.Hour // never 0, nor near it
}

var start = time.Now()
