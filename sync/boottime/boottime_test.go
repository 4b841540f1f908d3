package boottime

import (
	"testing"
	"time"
)

func TestNow(t *testing.T) {
	first, begun := Now(), time.Now()
	for time.Since(begun) < 2*time.Millisecond {
	}
	passed, lapsed := Now()-first, time.Since(begun)
	if first <= 0 || passed < 2*time.Millisecond || passed > lapsed+time.Second {
		t.Errorf("from %v on %v passed, want about %v", first, passed, lapsed)
	}
}

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		Now()
	}
}
