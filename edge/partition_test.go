package edge

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// onPartition is a rate that does so when its edge is cut off.
func onPartition(consistency, what string) limit.RateSpec {
	rate := aHundred
	rate.Consistency, rate.OnPartition = consistency, what
	return rate
}

// unanswered asks for a user's requests for so long, ten times a second, and sends frames that nobody answers.
func unanswered(n *Node, now time.Time, user string, d time.Duration) time.Time {
	for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Millisecond) {
		check(n, now, user)
		for _, out := range n.Flush(now) {
			n.Lost(now, out.Lane, out.Seq)
		}
	}
	return now
}

// An edge that nobody answers for a second does as its rates say: it keeps to its share,
// takes the whole limit, or denies; and as ever once it is answered.
func TestOnPartition(t *testing.T) {
	half := &deltasync.Share{Omega: 0.5, Sum: 10, Demand: 2000, Window: 2000}
	for what, want := range map[string][2]int{"share": {1, 60}, "open": {100, 100}, "closed": {0, 0}} {
		t.Run(what, func(t *testing.T) {
			n, _ := sharing(t, half, perUser(onPartition("adaptive", what)))
			now := unanswered(n, start.Add(1020*time.Millisecond), "u", 900*time.Millisecond)
			if d := check(n, now, "u"); d.Basis.CutOff {
				t.Errorf("after 0.9 s: %+v, and it is not cut off yet", d)
			}
			now = unanswered(n, now, "u", 500*time.Millisecond).Add(time.Second) // the window is empty
			before := check(n, now, "u")
			got := through(n, now, "u", 300)
			if before.Allowed {
				got++
			}
			if got < want[0] || got > want[1] {
				t.Errorf("%d of 100 admitted, want %d to %d", got, want[0], want[1])
			}
			if cut := what == "closed"; before.Basis.CutOff != cut || cut && (before.Zone != limit.ZoneHard || before.RetryAfter != time.Second || before.Remaining != 0 || before.Basis.Short) {
				t.Errorf("%+v while cut off", before)
			}
			answerShare(t, n, now, 2, nil)
			if got := through(n, now.Add(2*time.Second), "u", 50); got == 0 {
				t.Error("nothing is admitted once the region answers")
			}
		})
	}
}

// An edge that starts cut off keeps to its part, as far as it knows of how many that is
// one, in every window; and goes by what it is told from then on.
func TestStartsCutOff(t *testing.T) {
	for what, want := range map[string][2]int{"share": {8, 11}, "open": {100, 100}, "closed": {0, 0}} {
		n := newNode(t, Config{Regions: 5, Edges: 2}, perUser(onPartition("adaptive", what)))
		now := start
		for window := range 3 {
			before := check(n, now, "u")
			got := through(n, now, "u", 300)
			if before.Allowed {
				got++
			}
			if got < want[0] || got > want[1] {
				t.Errorf("%s: %d of 100 admitted in window %d, want %d to %d", what, got, window, want[0], want[1])
			}
			now = unanswered(n, now, "another", 1100*time.Millisecond)
		}
		now = now.Add(time.Minute)
		check(n, now, "w")
		answerShare(t, n, now, 1, nil) // alone, it hears
		if got := through(n, now, "v", 300); got != 100 {
			t.Errorf("%s: %d of 100 admitted where it is told to be alone", what, got)
		}
	}
	n := newNode(t, Config{}, perUser(onPartition("adaptive", "share")))
	if got := through(n, start, "u", 300); got != 100 {
		t.Errorf("%d of 100 admitted by who knows of no others", got)
	}
}

// An allowance that was made before a cut does not outlive it where the rate is closed:
// not that of a record that is not even looked at meanwhile.
func TestClosedEndsAllowances(t *testing.T) {
	for _, consistency := range []string{"loose", "adaptive"} {
		rate := onPartition(consistency, "closed")
		rate.Limit, rate.Per = 1_000_000, time.Hour
		n := newNode(t, Config{}, perUser(rate))
		check(n, start, "u")
		answerShare(t, n, start, 2, nil)
		if d := check(n, start.Add(10*time.Millisecond), "u"); !d.Allowed {
			t.Fatalf("%s: %+v", consistency, d)
		}
		now := unanswered(n, start.Add(20*time.Millisecond), "another", 1300*time.Millisecond)
		if d := check(n, now, "u"); d.Allowed || !d.Basis.CutOff {
			t.Errorf("%s: %+v after 1.3 s without an answer, want it cut off", consistency, d)
		}
	}
}

// Whose limit was open while others could not be heard of has a share of what is left of
// it with the first request after that: what he admitted his region has answered since.
func TestOpenedHasAShareAtOnce(t *testing.T) {
	for answered, want := range map[bool]bool{true: true, false: false} {
		rate := onPartition("adaptive", "open")
		rate.Per = 5 * time.Second
		n := newNode(t, Config{}, perUser(rate))
		check(n, start, "another")
		answerShare(t, n, start, 2, nil)
		now := unanswered(n, start.Add(10*time.Millisecond), "another", 2*time.Second)
		if got := through(n, now, "u", 80); got != 80 {
			t.Fatalf("%d of 80 admitted while nobody answers", got)
		}
		now = now.Add(time.Second)
		if answered {
			answerShare(t, n, now, 2, nil)
		} else {
			n.cluster.heard(&deltasync.Down{Regions: 2, LiveRegions: 2, LiveEdges: 1, Between: 80 * time.Millisecond}, now.UnixNano())
		}
		now = now.Add(500 * time.Millisecond)
		if d := check(n, now, "u"); d.Allowed != want || d.Basis.Short == want || d.Remaining < 19 {
			t.Errorf("answered %v: %+v, want allowed: %v", answered, d, want)
		}
	}
}

// A region that hears of no more than half of the regions is cut off from them.
func TestClosedWithHalfOfTheRegions(t *testing.T) {
	for _, c := range []struct {
		regions, live int
		scope         string
		cut           bool
	}{
		{5, 5, "global", false}, {5, 4, "global", false}, {5, 3, "global", false}, {5, 2, "global", true}, {5, 1, "global", true},
		{2, 1, "global", true}, {4, 2, "global", true}, {1, 1, "global", false}, {5, 1, "region", false}, {5, 1, "edge", false},
	} {
		rate := onPartition("adaptive", "closed")
		rate.Scope = c.scope
		n := newNode(t, Config{}, perUser(rate))
		n.cluster.heard(&deltasync.Down{Regions: c.regions, LiveRegions: c.live, LiveEdges: 1}, start.UnixNano())
		if d := check(n, start, "u"); d.Allowed == c.cut || d.Basis.CutOff != c.cut {
			t.Errorf("%+v: %+v", c, d)
		}
	}
}

// Who has never been answered is cut off, and who never asked is alone by intent.
func TestClosedBeforeTheFirstAnswer(t *testing.T) {
	n := newNode(t, Config{}, perUser(onPartition("loose", "closed")))
	if d := check(n, start, "u"); !d.Allowed {
		t.Errorf("%+v at an edge that asked nobody", d)
	}
	n.Flush(start)
	if d := check(n, start.Add(200*time.Millisecond), "u"); d.Allowed || !d.Basis.CutOff {
		t.Errorf("%+v before the first answer, want it cut off", d)
	}
}

// What is denied as nobody can be heard of is no mistake of the client's: it is not
// punished, opens no margin and waits for no room.
func TestClosedPunishesNobody(t *testing.T) {
	rule := perUser(onPartition("loose", "closed"))
	rule.Penalty = limit.Penalty{For: time.Minute}
	n := newNode(t, Config{}, rule)
	check(n, start, "u")
	answerShare(t, n, start, 2, nil)
	now := unanswered(n, start.Add(10*time.Millisecond), "u", 2*time.Second)
	if d := check(n, now, "u"); !d.Basis.CutOff {
		t.Fatalf("%+v, want it cut off", d)
	}
	n.cluster.heard(&deltasync.Down{Regions: 2, LiveRegions: 2, LiveEdges: 1, Between: 80 * time.Millisecond}, now.UnixNano())
	if d := check(n, now.Add(10*time.Millisecond), "u"); !d.Allowed {
		t.Errorf("%+v once the region answers", d)
	}
}

// A margin above a limit is for as long as others are heard of: it closes while an edge
// waits for its region, and with the regions that are not heard of.
func TestMarginsCloseWithAge(t *testing.T) {
	for _, algorithm := range []string{"sub_windows", "fixed_window"} {
		rule := perUser(adaptive(limit.RateSpec{Name: "r", Limit: 100, Per: time.Minute, Algorithm: algorithm, Surge: 1000})) // shares decide always
		rule.Margin.SoftPercent = 50
		n, _ := sharing(t, &deltasync.Share{Omega: 1}, rule)
		now := start.Add(rule.Rates[0].Per + 20*time.Millisecond)
		through(n, now, "u", 100)
		if d := check(n, now, "u"); !d.Allowed || d.Zone != limit.ZoneSoft {
			t.Errorf("%s: %+v, want it in the margin", algorithm, d)
		}
		n.cluster.sent(now.UnixNano()) // and nobody answers
		later := now.Add(time.Duration(n.cluster.late()+n.cluster.staleAfter()) / 2)
		if got := through(n, later, "u", 100); got < 5 || got > 30 {
			t.Errorf("%s: %d admitted in half of the margin, want some 24, or its share", algorithm, got)
		}
		if d := check(n, now.Add(2*time.Second), "u"); d.Allowed || d.Zone != limit.ZoneHard {
			t.Errorf("%s: %+v once it is cut off, want denied", algorithm, d)
		}
	}
}

func TestMarginsCloseWithRegions(t *testing.T) {
	for _, c := range []struct {
		regions, live int32
		what          string
		want          float64
	}{{5, 5, "share", 0}, {5, 4, "share", 0.25}, {5, 1, "share", 1}, {5, 1, "open", 0}, {1, 1, "share", 0}} {
		n := newNode(t, Config{}, perUser(onPartition("adaptive", c.what)))
		n.cluster.regions.Store(c.regions)
		n.cluster.live.Store(c.live)
		rate := *n.Rules().Rules()[0].Rates[0]
		rate.Ceiling = 150
		if got := n.cluster.closed(&rate, start.UnixNano()); got != c.want {
			t.Errorf("%+v: %v of the margin is closed", c, got)
		}
		g := rate.Grant(limit.Level{Whole: 120}, &limit.Share{Omega: 1, Weight: 1, Closed: c.want})
		if want := c.want < 0.5; (g.Cost > 0) != want {
			t.Errorf("%+v: %+v at 120 of 100 with a margin of 50", c, g)
		}
	}
}
