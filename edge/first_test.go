package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// A flood of new keys fills the outbox again and again: one that reaches half of
// its limit meanwhile goes with the next frame all the same, and so does one that
// is refreshed or asks.
func TestFloodKeepsNobodyBackWhoIsNearItsLimit(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 100, Per: time.Hour}))
	n.outboxes[0] = deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: 800, ReserveOneIn: 8})
	now, users := start, 0
	flood := func() {
		for range 3000 {
			check(n, now, fmt.Sprint("flood", users))
			users++
		}
	}
	// told is what the next frame tells of a user, nil: nothing. It is lost.
	told := func(user string) *deltasync.Delta {
		t.Helper()
		now = now.Add(time.Second)
		up := upOf(t, n.Flush(now)[:1])
		n.Lost(now, 0, up.Seq)
		now = now.Add(2 * time.Second)
		for i := range up.Sections {
			for j := range up.Sections[i].Deltas {
				if d := &up.Sections[i].Deltas[j]; d.Key == keyOf(n, user) {
					return d
				}
			}
		}
		return nil
	}
	flood()
	for range 30 {
		check(n, now, "low")
	}
	if told("low") != nil {
		t.Fatal("a key at 30 % passes all those that came before it: the flood is too small")
	}
	flood()
	for range 51 {
		check(n, now, "high")
	}
	if d := told("high"); d == nil || d.Cells[0].Charges != 51 {
		t.Errorf("the next frame tells %+v of a key at 51 %%, want 51 charges", d)
	}
	flood()
	check(n, now, "high")
	if d := told("high"); d == nil || d.Cells[len(d.Cells)-1].Charges != 52 && len(d.Cells) == 1 {
		t.Errorf("once more: %+v, want 52 charges", d)
	}
}
