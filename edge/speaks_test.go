package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Where an edge has shares it says that it is there though it has nothing to tell, at first
// each time; elsewhere on the first lane alone, now and then. And that it leaves, once.
func TestAnEdgeWithSharesSpeaks(t *testing.T) {
	const interval = 100 * time.Millisecond
	now := start.UnixNano()
	ago := func(d time.Duration) int64 { return now - int64(d) }
	for _, c := range []struct {
		what   string
		lane   int
		shared int64
		sent   time.Duration // ago
		leaves bool
		want   bool
	}{
		{"it was never asked", 1, 0, time.Hour, false, false},
		{"nor on the first lane", 0, 0, time.Hour, false, true},
		{"it was asked a moment ago", 1, ago(time.Second), interval, false, true},
		{"and has spoken", 1, ago(time.Second), interval / 2, false, false},
		{"some seconds ago", 1, ago(5 * time.Second), 2 * interval, false, false},
		{"and it has been silent for long", 1, ago(5 * time.Second), 5 * interval, false, true},
		{"long ago", 1, ago(deltasync.ShareKept + time.Second), time.Hour, false, false},
		{"it leaves", 1, ago(time.Hour), 0, true, true},
		{"it leaves and has no share", 1, 0, 0, true, false},
	} {
		l := service{shared: c.shared, sent: ago(c.sent)}
		if got := l.speaks(now, c.lane, interval, c.leaves); got != c.want {
			t.Errorf("%s: it speaks is %v, want %v", c.what, got, c.want)
		}
		if l.left = true; c.leaves && l.speaks(now, c.lane, interval, true) {
			t.Errorf("%s: it says so twice", c.what)
		}
	}
}
