package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// However many keys are new, or change, those of other classes have their turn:
// a new and a regular one within a second or two, a cold one each second, but that it waits
// behind the refresh of keys that were a flood.
func TestNoClassStarves(t *testing.T) {
	alone.Mark(t)
	fast := limit.RuleSpec{Name: "fast", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1000, Per: 10 * time.Second}}}
	slow := limit.RuleSpec{Name: "slow", Group: "slow", Key: []string{"acct"}, Rates: []limit.RateSpec{{Limit: 100_000, Per: time.Hour}}}
	for _, tt := range []struct {
		name             string
		busy, fresh, far int // keys that change, new ones, and cold ones that change, a flush
		hot, cold, newly time.Duration
	}{
		{"many change", 3000, 0, 0, 500 * time.Millisecond, 1500 * time.Millisecond, 300 * time.Millisecond},
		{"many are new", 0, 5000, 0, 2 * time.Second, 10 * time.Second, 10 * time.Second},
		{"both", 2000, 3000, 0, 2 * time.Second, 10 * time.Second, 10 * time.Second},
		{"many are cold", 0, 0, 8000, time.Second, 10 * time.Second, 300 * time.Millisecond},
		{"all", 1500, 500, 4000, time.Second, 10 * time.Second, 500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, Config{}, fast, slow)
			n.outboxes[0] = deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: 1920, ReserveOneIn: 8})
			ask := func(now time.Time, name, value string) {
				req := n.Rules().Only().NewRequest()
				defer req.Release()
				req.Set(name, value)
				n.Check(now, req)
			}
			keyOf := func(rule int, name, value string) deltasync.Key {
				req := n.Rules().Only().NewRequest()
				defer req.Release()
				req.Set(name, value)
				r := n.Rules().Rules()[rule]
				m, _ := r.AppendKey(nil, req)
				return deltasync.Keyer(r.Sub).Hash(m).Key(r.Rates[0].Generation)
			}
			hotKey, coldKey := keyOf(0, "user", "hot"), keyOf(1, "acct", "cold")
			last, longest := map[deltasync.Key]time.Time{hotKey: start, coldKey: start}, map[deltasync.Key]time.Duration{}
			born, newly := map[deltasync.Key]time.Time{}, time.Duration(0)
			now, newest := start, 0
			for flush := range 100 {
				now = now.Add(100 * time.Millisecond)
				for u := range tt.busy {
					ask(now, "user", fmt.Sprint("u", u))
				}
				for range tt.fresh {
					newest++
					ask(now, "user", fmt.Sprint("new", newest))
				}
				for u := range tt.far {
					ask(now, "acct", fmt.Sprint("far", u))
				}
				if flush%10 == 5 {
					name := fmt.Sprint("born", flush)
					ask(now, "user", name)
					born[keyOf(0, "user", name)] = now
				}
				ask(now, "user", "hot")
				ask(now, "acct", "cold")
				flushTo(t, n, now, 1, deltasync.StatusOK, func(d *deltasync.Delta) {
					if at, watched := last[d.Key]; watched && d.Tells() {
						longest[d.Key], last[d.Key] = max(longest[d.Key], now.Sub(at)), now
					}
					if at, is := born[d.Key]; is {
						newly = max(newly, now.Sub(at))
						delete(born, d.Key)
					}
				})
			}
			for key, at := range last {
				longest[key] = max(longest[key], now.Sub(at))
			}
			for _, at := range born {
				newly = max(newly, now.Sub(at))
			}
			if longest[hotKey] > tt.hot || longest[coldKey] > tt.cold || newly > tt.newly {
				t.Errorf("a regular key waits %v, a cold one %v, a new one %v, want %v, %v and %v at most", longest[hotKey], longest[coldKey], newly, tt.hot, tt.cold, tt.newly)
			}
		})
	}
}

// What gathers to a hundredth of a limit is told with the next regular flush,
// also by algorithms that fold with each request.
func TestAHundredthIsToldByEveryAlgorithm(t *testing.T) {
	for name, spec := range everyKind(1000) {
		if spec.Lease > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			n := newNode(t, Config{}, perUser(spec))
			check(n, start, "u")
			n.flushAll(start)
			now := start.Add(2 * time.Second)
			told := func() (any bool) {
				flushTo(t, n, now, 1, deltasync.StatusOK, func(d *deltasync.Delta) { any = any || d.Tells() })
				return any
			}
			check(n, now, "u")
			told() // at once, after a rest; the shard's second has begun
			for range 300 {
				now = now.Add(200 * time.Microsecond)
				check(n, now, "u")
			}
			if !told() {
				t.Error("a third of the limit waits beyond the regular flush")
			}
		})
	}
}

// With a budget of bytes an edge sends no more than that, and first who is near
// its limit.
func TestBudgetOfBytes(t *testing.T) {
	alone.Mark(t)
	const rate = 20_000
	n := newNode(t, Config{Budget: rate}, perUser(limit.RateSpec{Limit: 1000, Per: 10 * time.Second}))
	now, sent, near, last := start, 0, keyOf(n, "near"), start
	longest := time.Duration(0)
	for range 300 {
		now = now.Add(100 * time.Millisecond)
		for u := range 2000 {
			check(n, now, fmt.Sprint(u))
		}
		for range 8 {
			check(n, now, "near") // 80 % of its limit in ten seconds
		}
		n.Tick(now)
		for _, o := range n.Flush(now) {
			sent += len(o.Payload)
			var up deltasync.Up
			if err := up.UnmarshalBinary(o.Payload); err != nil {
				t.Fatal(err)
			}
			for _, s := range up.Sections {
				for i := range s.Deltas {
					if s.Deltas[i].Key == near {
						longest, last = max(longest, now.Sub(last)), now
					}
				}
			}
			n.Lost(now, o.Lane, o.Seq) // or replies would be in it
			n.paused[o.Lane] = pause{}
		}
	}
	if most := 31*rate + 2*deltasync.MaxFrame; sent > most || sent < 25*rate {
		t.Errorf("%d bytes in 30 s, want about %d", sent, 30*rate)
	}
	if longest = max(longest, now.Sub(last)); longest > 5*time.Second {
		t.Errorf("a key near its limit waits %v", longest)
	}
	if n.stats.overBudget.Load() == 0 {
		t.Error("nothing ever waited for the budget")
	}
}
