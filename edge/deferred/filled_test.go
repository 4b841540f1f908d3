package deferred

import (
	"fmt"
	"testing"
	"time"
)

// A queue that was full is taken to be for a second; of how many that is known is bounded.
func TestFilledForASecond(t *testing.T) {
	var f filled
	at := time.Unix(1000, 0)
	f.was("a", at)
	for after, want := range map[time.Duration]bool{0: true, fullWait - 1: true} {
		if got := f.is("a", at.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	if f.is("b", at) || f.is("a", at.Add(fullWait)) {
		t.Error("another's is full, or one is for longer than a second")
	}
	for i := range 3 * mostFull {
		f.was(fmt.Sprint(i), at)
	}
	if n := len(f.until); n > mostFull || !f.is(fmt.Sprint(3*mostFull-1), at) {
		t.Errorf("%d are known, want at most %d, and the last", n, mostFull)
	}
}
