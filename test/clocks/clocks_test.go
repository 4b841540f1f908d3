package clocks_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/clocks"
)

func TestMachine(t *testing.T) {
	m := clocks.Begin()
	before := m.After(0)
	for _, m.Set = range []time.Duration{0, -time.Hour, 2 * time.Second} {
		now := m.After(time.Second)
		if got := now.UnixNano() - m.True(time.Second); got != int64(m.Set) {
			t.Errorf("set by %v it shows %v more", m.Set, time.Duration(got))
		}
		if got := now.Sub(before); got != time.Second {
			t.Errorf("set by %v it tells that %v passed, want 1s", m.Set, got)
		}
	}
}
