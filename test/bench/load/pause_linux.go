package load

import (
	"syscall"
	"time"
)

// pause waits to the point, which time.Sleep does not for less than a millisecond.
func pause(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // a signal ends it early: the request is sent so much too soon
}
