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
		{"it leaves", 1, ago(time.Second), 0, true, true},
		{"it leaves, asked for nothing for long", 1, ago(deltasync.ShareKept + time.Second), 0, true, false},
		{"it leaves and has no share", 1, 0, 0, true, false},
	} {
		l := service{shared: c.shared, sent: ago(c.sent), epoch: 1}
		if fresh := (&service{sent: ago(50 * interval)}); !fresh.speaks(now, c.lane, interval, false) {
			t.Errorf("%s: it does not speak where nobody has answered yet", c.what)
		}
		if got := l.speaks(now, c.lane, interval, c.leaves); got != c.want {
			t.Errorf("%s: it speaks is %v, want %v", c.what, got, c.want)
		}
		if !c.want || !c.leaves {
			continue
		}
		if l.bye = now; l.speaks(now+int64(interval)/2, c.lane, interval, true) {
			t.Errorf("%s: it says so again at once", c.what)
		}
		if !l.speaks(now+int64(interval), c.lane, interval, true) {
			t.Errorf("%s: it does not say so again", c.what)
		}
		if l.left, l.sent = true, now; l.speaks(now+int64(interval)/2, c.lane, interval, true) {
			t.Errorf("%s: it says so though that was answered", c.what)
		}
	}
}
