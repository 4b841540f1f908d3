package edge

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// What the region sees wrong in an edge's settings is why it is degraded, for as
// long as that is so, and is logged once, with what to mend.
func TestMistakesOfSettingsAreTold(t *testing.T) {
	for _, c := range []struct {
		name   string
		down   deltasync.Down
		mend   string
		refuse bool
	}{
		{"lanes", deltasync.Down{Status: deltasync.StatusUnsupported, Mistake: deltasync.MistakeLanes, Lanes: 4}, "region_lanes=4", true},
		{"lanes", deltasync.Down{Status: deltasync.StatusForbidden, Mistake: deltasync.MistakeLanes, Lanes: 4}, "set lanes alike", true}, // muted
		{"forbidden", deltasync.Down{Status: deltasync.StatusForbidden, Mistake: deltasync.MistakeLanes, Lanes: 1}, "", true},            // for the lanes that it had
		{"secret", deltasync.Down{Status: deltasync.StatusOK, Mistake: deltasync.MistakeSecret}, "one secret", false},
		{"", deltasync.Down{Status: deltasync.StatusOK, Mistake: 77}, "", false}, // of a later version
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			n := newNode(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, perUser(limit.RateSpec{Limit: 5, Per: time.Minute}))
			now := start
			answer := func(down deltasync.Down, refused bool) {
				t.Helper()
				now = now.Add(300 * time.Millisecond)
				check(n, now, "u1")
				up := upOf(t, n.Flush(now))
				if up.SecretCheck != n.secret || n.secret == 0 {
					t.Errorf("the first lane says %x of the secret, want %x", up.SecretCheck, n.secret)
				}
				down.Region, down.Node, down.StoreEpoch = "eu", euNode, 1
				if !refused {
					down.Seq, down.Totals = up.Seq, make([]deltasync.Totals, 1)
				}
				b, err := down.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := n.Receive(now, 0, b); (err != nil) != refused {
					t.Fatalf("Receive: %v", err)
				}
				if refused {
					n.Lost(now, 0, up.Seq)
				}
			}
			answer(c.down, c.refuse)
			answer(c.down, c.refuse)
			if got := n.Degraded(now); got != c.name {
				t.Errorf("Degraded = %q, want %q", got, c.name)
			}
			if got := log.String(); !strings.Contains(got, c.mend) || strings.Count(got, "level=ERROR") != min(1, len(c.mend)) {
				t.Errorf("log %q, want one error with %q", got, c.mend)
			}
			answer(deltasync.Down{Status: deltasync.StatusOK}, false)
			if got := n.Degraded(now); got != "" {
				t.Errorf("mended: Degraded = %q", got)
			}
		})
	}
}
