package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What has faded since a slice began is free, and told so: no request is marked
// as in a margin, or near a limit, that is not.
func TestMarksFollowWhatFades(t *testing.T) {
	for name, spec := range map[string]limit.RateSpec{
		"sub_windows":    {Limit: 1000, Per: 40 * time.Hour, Slices: 40},
		"sliding_window": {Limit: 1000, Per: 40 * time.Hour, Algorithm: "sliding_window"},
		"token_bucket":   tokens(1000, limit.Flow{Units: 500, Per: 40 * time.Hour}),
	} {
		t.Run(name, func(t *testing.T) {
			rule := perUser(spec)
			rule.Margin.SoftPercent, rule.NearLimitPercent = 10, 80
			n := newNode(t, Config{}, rule)
			rate := n.Rules().Rules()[0].Rates[0]
			now := time.Unix(0, rate.EndOf(rate.SliceAt(start.UnixNano())))
			for range 1000 {
				check(n, now, "u")
			}
			if rate.Bucket() {
				now = now.Add(time.Millisecond)
			} else { // what was spent in one slice fades in one
				now = time.Unix(0, rate.EndOf(rate.SliceAt(now.UnixNano()))).Add(rate.Window - rate.Width)
			}
			if d := check(n, now, "u"); d.Zone != limit.ZoneSoft || !d.Near || d.Remaining != 0 {
				t.Fatalf("the 1001st: %+v, want it soft and near", d)
			}
			later := now.Add(rate.Width * 9 / 10)
			used := rate.Rounded(usedBy(n, "u", later))
			d := check(n, later, "u")
			if used > 995 || d.Zone != limit.ZoneNormal || d.Near != (used+1 >= 800) || d.Remaining != 999-used {
				t.Errorf("%d of 1000 in use: %+v, want it below the limit, near from 800 on, %d remaining", used, d, 999-used)
			}
		})
	}
}

// usedBy is what counts of a user's own charges.
func usedBy(n *Node, user string, now time.Time) limit.Level {
	s := n.shard(keyOf(n, user))
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(keyOf(n, user))
	r.settle()
	return s.measure(r, now.UnixNano())
}

// A peek says how things stand, not how they stood when the slice began.
func TestPeekFollowsWhatFades(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1000, Per: 40 * time.Hour, Slices: 40}))
	checkCost(n, start, "u", 500)
	checkCost(n, start.Add(time.Hour), "u", 499)
	at := start.Add(40 * time.Hour) // the first slice fades from here on
	check(n, at, "u")
	for _, minutes := range []int{6, 30, 54} {
		later := at.Add(time.Duration(minutes) * time.Minute)
		want := uint64(500 * minutes / 60)
		if d := n.Check(later, peekOf(n, "u")); d.Remaining != want {
			t.Errorf("%d minutes into the hour in which 500 fade: %d remaining, want %d", minutes, d.Remaining, want)
		}
	}
}

// A parent lends what has faded of it.
func TestLenderFollowsWhatFades(t *testing.T) {
	parent := lender(1000)
	parent.Rates[0] = limit.RateSpec{Limit: 1000, Per: 40 * time.Hour, Slices: 40}
	n := newNode(t, Config{}, parent, borrower("child", limit.RateSpec{Limit: 1, Per: time.Minute, Algorithm: "fixed_window"}))
	ask := func(at time.Time, cost uint64) bool {
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Cost = cost
		return n.Check(at, req).Allowed
	}
	ask(start, 500)
	ask(start.Add(time.Hour), 500)
	at := start.Add(40 * time.Hour)
	if ask(at, 1) {
		t.Fatal("the parent has room that it should not have")
	}
	later := at.Add(30 * time.Minute)
	if got := through(n, later, "u", 300); got != 11 { // its margin ends there
		t.Errorf("half of the parent's 500 have faded: %d admitted, want 1 and the 10 of the child's margin", got)
	}
}

// Who lives in a margin is not folded with each request.
func TestMarginIsFoldedNowAndThen(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1000, Per: time.Minute})
	rule.Margin.SoftPercent, rule.NearLimitPercent = 50, 80
	n := newNode(t, Config{}, rule)
	n.stout = true // for a sparse record keeps what is fresh when it folds
	checkCost(n, start, "u", 700)
	checkCost(n, start, "u", 400) // enters the margin, and is folded for that
	r := n.shard(keyOf(n, "u")).find(keyOf(n, "u"))
	rate := n.Rules().Rules()[0].Rates[0]
	for k := range uint64(10) { // what is fresh was charged since the last fold
		if check(n, start.Add(time.Duration(k)*time.Microsecond), "u"); r.fresh != 401+k {
			t.Fatalf("request %d within a moment: %d charged since the last fold, want %d", k+1, r.fresh, 401+k)
		}
	}
	check(n, start.Add(rate.Width/moments+time.Microsecond), "u")
	if r.fresh != 1 {
		t.Fatalf("after a moment %d are charged since the last fold, want 1", r.fresh)
	}
}
