package edge

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// adaptive is a rate that is decided by shares; with 100 a second any request makes one.
func adaptive(spec limit.RateSpec) limit.RateSpec {
	spec.Consistency = "adaptive"
	return spec
}

var aHundred = limit.RateSpec{Name: "r", Limit: 100, Per: time.Second}

// answerShare replies to the next frame with a share, as one of so many regions.
func answerShare(t *testing.T, n *Node, now time.Time, regions int, share *deltasync.Share) *deltasync.Up {
	t.Helper()
	up := upOf(t, n.Flush(now))
	receiveShare(t, n, now, up, regions, share)
	return up
}

// receiveShare is answerShare to a frame that has left.
func receiveShare(t *testing.T, n *Node, now time.Time, up *deltasync.Up, regions int, share *deltasync.Share) {
	t.Helper()
	down := deltasync.Down{
		Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 2, LiveEdges: 1, Regions: regions, Between: 80 * time.Millisecond,
		EchoSentAt: up.SentAt, ReceivedAt: up.SentAt, SentAt: up.SentAt,
	}
	for i := range up.Sections {
		for range up.Sections[i].Deltas {
			down.Totals = append(down.Totals, deltasync.Totals{Share: share})
		}
	}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(now, 0, b); err != nil {
		t.Fatal(err)
	}
}

// sharing is a node of one of two regions, of which a user's share was told at start.
func sharing(t *testing.T, share *deltasync.Share, rule limit.RuleSpec) (*Node, *record) {
	t.Helper()
	n := newNode(t, Config{}, rule)
	check(n, start, "u")
	answerShare(t, n, start, 2, nil)
	now := start.Add(10 * time.Millisecond)
	check(n, now.Add(rule.Rates[0].Per), "u")
	answerShare(t, n, now.Add(rule.Rates[0].Per), 2, share)
	r := n.shard(keyOf(n, "u")).find(keyOf(n, "u"))
	if r == nil || r.sparse() || r.block.share == nil || share != nil && r.block.share.toldAt == 0 {
		t.Fatalf("%+v: want a record that was told a share", r)
	}
	return n, r
}

// Without a share nothing of a counter is urgent, so that others hear of it with the
// next regular frame: where ten times its rate everywhere uses it up before that it is
// decided by its share from the first request on, near as the other regions may be.
func TestNearRegionsShareWhatIsUsedUpWithinAnInterval(t *testing.T) {
	for _, tt := range []struct {
		per  time.Duration
		want bool
	}{{time.Second, true}, {10 * time.Second, false}} {
		n := newNode(t, Config{}, perUser(adaptive(limit.RateSpec{Limit: 100, Per: tt.per})))
		check(n, start, "a")
		answerShare(t, n, start, 5, nil)
		n.cluster.between.Store(int64(20 * time.Millisecond))
		check(n, start, "u")
		r := n.shard(keyOf(n, "u")).find(keyOf(n, "u"))
		if got := !r.sparse() && r.block.share != nil; got != tt.want {
			t.Errorf("100 in %v: decided by a share %t, want %t", tt.per, got, tt.want)
		}
	}
}

// What other regions could not have seen they have seen some time later, whether this
// edge is told so or not: else a key of which nothing more is told, as the region has no
// place for it, would be denied for good.
func TestUnseenIsSeenLater(t *testing.T) {
	n, r := sharing(t, &deltasync.Share{Omega: 0.5, Sum: 1, Demand: 1, Window: 1, Unseen: 1000}, perUser(adaptive(aHundred)))
	now := start.Add(1020 * time.Millisecond)
	if d := check(n, now, "u"); d.Allowed || !d.Basis.Short {
		t.Errorf("at once: %+v, want it short of a share", d)
	}
	for i := range 20 {
		now = now.Add(100 * time.Millisecond)
		answerShare(t, n, now, 2, nil) // the region answers, but knows nothing of the key
		d := check(n, now, "u")
		if i > 5 && !d.Allowed {
			t.Fatalf("%v later: %+v with a share of %+v, want allowed", time.Duration(i+1)*100*time.Millisecond, d, r.block.share.grant)
		}
	}
}

// A share that was told long ago is forgotten: an edge that weighed little then has its
// part of a key of which nothing is told any more.
func TestOldSharesAreForgotten(t *testing.T) {
	rate := adaptive(limit.RateSpec{Name: "r", Limit: 100, Per: time.Minute})
	rate.Surge = 1000 // shares decide always
	n, _ := sharing(t, &deltasync.Share{Omega: 0.001, Sum: 1000, Demand: 1000, Window: 1000}, perUser(rate))
	now := start.Add(time.Minute + 20*time.Millisecond)
	through(n, now, "u", 5)
	for range 11 {
		now = now.Add(time.Second)
		check(n, now, "u")
		answerShare(t, n, now, 2, nil)
	}
	if got := through(n, now, "u", 100); got < 40 || got > 56 {
		t.Errorf("%d admitted by the only edge of one of two regions, want about half of 100", got)
	}
}

// An edge weighs what it asked for by the answer before the last, as the others know it by
// then, and less as soon as it asks for less: of a surge that is not known all edges' parts
// would come to more than the whole.
func TestWeightsRiseLate(t *testing.T) {
	n, r := sharing(t, &deltasync.Share{Omega: 1, Sum: 200}, perUser(adaptive(aHundred)))
	sh, s := r.block.share, n.shard(keyOf(n, "u"))
	sh.asked, sh.acked = 10, 10
	h := hearing{now: start.Add(2 * time.Second).UnixNano(), told: sh.toldAt, left: start.Add(2 * time.Second).UnixNano()}
	for i, c := range []struct{ asks, weighs float64 }{{100, 10}, {100, 100}, {30, 30}, {150, 30}, {60, 60}, {150, 60}, {150, 150}} {
		sh.marks = [4]mark{{}, {}, {}, {h.left, sh.spent, c.asks}}
		h.told++
		s.hearShare(r, &h, &deltasync.Delta{}, &deltasync.Share{Omega: 1, Sum: 200})
		const least = 2.5 // a twentieth of 100 a second, of one of two regions
		if got, want := sh.weight(&n.cluster, r.block.rate), (c.weighs+least)/(200+least); math.Abs(got-want) > 1e-9 {
			t.Errorf("answer %d, when it asks for %v: it weighs %v, want %v, as of who asks for %v", i, c.asks, got, want, c.weighs)
		}
	}
}

// Nobody's part is more than the whole, whatever is told.
func TestPartAboveTheWhole(t *testing.T) {
	n, _ := sharing(t, &deltasync.Share{Omega: 1 << 40, Sum: 1, Demand: 1000, Window: 1000}, perUser(adaptive(aHundred)))
	if got := through(n, start.Add(1020*time.Millisecond), "u", 300); got > 100 {
		t.Errorf("%d of 100 admitted", got)
	}
}

// A denied request is asked for once, also where it is charged.
func TestDeniedAskOnce(t *testing.T) {
	for _, counts := range []bool{false, true} {
		spec := aHundred
		spec.Algorithm, spec.CountDenied = "sliding_log", counts
		n, r := sharing(t, &deltasync.Share{Omega: 1, Sum: 1, Demand: 1, Window: 1}, perUser(adaptive(spec)))
		now := start.Add(1020 * time.Millisecond)
		req := requestOf(n, "u")
		req.Cost = 200
		for range 10 {
			if d := n.Check(now, req); d.Allowed {
				t.Fatalf("%+v, want denied", d)
			}
		}
		req.Release()
		d := upOf(t, n.Flush(now.Add(250*time.Millisecond))).Sections[0].Deltas[0].Demand
		if d == nil || d.Fast < 1000 || d.Fast > 8100 || r.block.share == nil {
			t.Errorf("denied requests are counted: %v: %+v is asked for, want about 2000 in a quarter of a second", counts, d)
		}
	}
}

// Where no shares are told, as by aggregators of the build before, an adaptive rate is
// as a loose one: also in that what was charged is told in a hurry, near the limit.
func TestAdaptiveWithoutSharesHurries(t *testing.T) {
	for _, spec := range []limit.RateSpec{aHundred, adaptive(aHundred)} {
		n := newNode(t, Config{}, perUser(spec))
		check(n, start, "u")
		answerShare(t, n, start, 0, nil)
		n.Flush(start) // nothing is left
		if checkCost(n, start.Add(time.Millisecond), "u", 60); len(n.FlushUrgent(start.Add(time.Millisecond))) == 0 {
			t.Errorf("%q: 60 of 100 are charged, and nobody hears soon", spec.Consistency)
		}
	}
}

// Rules that are loose again send no demand and keep no shares.
func TestLooseAgain(t *testing.T) {
	n, r := sharing(t, &deltasync.Share{Omega: 0.01, Sum: 1, Demand: 1000, Window: 1000}, perUser(adaptive(aHundred)))
	now := start.Add(1020 * time.Millisecond)
	if d := check(n, now, "u"); d.Allowed && check(n, now, "u").Allowed && check(n, now, "u").Allowed {
		t.Fatal("a hundredth of the limit was enough for three")
	}
	answerShare(t, n, now, 2, nil)
	n.SetRules(compile(t, perUser(onPartition("loose", ""))))
	now = now.Add(50 * time.Millisecond)
	if d := check(n, now, "u"); !d.Allowed || d.Basis.Short {
		t.Errorf("%+v, want allowed", d)
	}
	if up := answerShare(t, n, now, 2, &deltasync.Share{Omega: 0.01}); up.Sections[0].Deltas[0].Demand != nil || r.block.share != nil {
		t.Errorf("%+v is told, with a share of %+v, want neither", up.Sections[0].Deltas[0].Demand, r.block.share)
	}
	n.SetRules(compile(t, perUser(adaptive(aHundred))))
	if d := check(n, now.Add(50*time.Millisecond), "u"); !d.Allowed {
		t.Errorf("adaptive again: %+v, want allowed", d)
	}
}

// Who is held back for what it used before it was forgotten is at its limit: its share
// is not what it is short of.
func TestHeldIsNotShort(t *testing.T) {
	n := newNode(t, Config{}, perUser(adaptive(limit.RateSpec{Name: "r", Limit: 100, Per: time.Hour})))
	check(n, start, "u")
	answerShare(t, n, start, 2, nil)
	through(n, start, "u", 94)
	forgetAll(n, start)
	if got := through(n, start, "u", 100); got > 10 {
		t.Errorf("%d more of 100 were admitted after it was forgotten, want 5", got)
	}
	if d := check(n, start, "u"); d.Allowed || d.Basis.Short || d.RetryAfter < time.Minute {
		t.Errorf("%+v, want denied by the limit, for long", d)
	}
}

// A rule that has requests wait for room has them wait for that of the limit: whoever is
// short of a share is denied, as nobody knows when others leave more of it.
func TestMaxDelayKeepsToShares(t *testing.T) {
	rule := perUser(adaptive(limit.RateSpec{Name: "r", Algorithm: "token_bucket", Capacity: 100, Refill: limit.Flow{Units: 100, Per: time.Second}}))
	rule.MaxDelay = 200 * time.Millisecond
	n := newNode(t, Config{}, rule)
	check(n, start, "u")
	answerShare(t, n, start, 2, nil)
	now := start.Add(time.Second)
	check(n, now, "u")
	answerShare(t, n, now, 2, &deltasync.Share{Omega: 0.1, Sum: 1, Demand: 1000, Window: 1000})
	got := through(n, now.Add(10*time.Millisecond), "u", 100)
	if got < 5 || got > 20 {
		t.Errorf("%d admitted by an edge that has a tenth of 100", got)
	}
}

// A parent lends of its share as it admits by it.
func TestBorrowedOfAShare(t *testing.T) {
	parent := lender(100)
	parent.Rates[0] = adaptive(limit.RateSpec{Limit: 100, Per: time.Second})
	for _, cost := range []uint64{1, 8} {
		child := borrower("child", limit.RateSpec{Limit: 10, Per: time.Hour})
		child.Cost.Max = 100
		n := newNode(t, Config{}, parent, child)
		through(n, start, "u", 11)
		answerShare(t, n, start, 2, nil)
		now := start.Add(2 * time.Second)
		check(n, now, "u")
		answerShare(t, n, now, 2, &deltasync.Share{Omega: 0.5, Sum: 1, Demand: 1000, Window: 1000})
		now = now.Add(10 * time.Millisecond)
		lent := uint64(0)
		for range 100 / cost {
			if checkCost(n, now, "u", cost).Allowed {
				lent += cost
			}
		}
		if lent < 30 || lent > 45 {
			t.Errorf("%d lent by an edge that has some 37 of 100, in requests of %d", lent, cost)
		}
	}
}

// A push that waited for long at a slow edge says no more than it did when it was made:
// what was answered since stands, unless it was answered by an aggregator whose clock was
// set back.
func TestLatePushTellsNoShare(t *testing.T) {
	n, r := sharing(t, &deltasync.Share{Omega: 0.5, Sum: 1, Demand: 1, Window: 1}, perUser(adaptive(aHundred)))
	told := r.block.share.toldAt
	push := func(told int64, kept uint64) {
		shape := shapeOf(r.block.rate)
		n.hearHot(told, told, &shape, &deltasync.HotKey{Key: keyOf(n, "u"), Totals: deltasync.Totals{Share: &deltasync.Share{Omega: 0.5, Sum: 1, Kept: kept}}}, 2)
	}
	for _, late := range []time.Duration{time.Millisecond, 20 * time.Second} {
		if push(told-int64(late), 50); r.block.share.told.Kept != 0 {
			t.Errorf("a push of %v before the last answer: %+v is the share", late, r.block.share.told)
		}
	}
	if push(told+1, 20); r.block.share.told.Kept != 20 {
		t.Errorf("a push of after the last answer: %+v is the share", r.block.share.told)
	}
}

// A region that answers again after a silence may not know yet what was charged here
// meanwhile: until it has answered what it was told of a counter, the edge goes by its part
// of that, and takes no share from pushes. It does not wait for that for ever.
func TestAfterASilenceItsPartUntilItIsAnswered(t *testing.T) {
	for name, c := range map[string]struct {
		answers bool
		waits   time.Duration
		alone   bool
	}{
		"before it is answered":     {false, 0, true},
		"a while later":             {false, 990 * time.Millisecond, true},
		"ten intervals later":       {false, time.Second, false},
		"as soon as it is answered": {true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			half := &deltasync.Share{Omega: 0.5, Demand: 20, Window: 20}
			n := newNode(t, Config{}, perUser(adaptive(limit.RateSpec{Name: "r", Limit: 100, Per: 10 * time.Second})))
			through(n, start, "u", 30) // from here on it goes by its share
			answerShare(t, n, start, 2, nil)
			now := start.Add(500 * time.Millisecond)
			check(n, now, "u")
			answerShare(t, n, now, 2, half)
			now = now.Add(11 * time.Second) // the window is empty
			check(n, now, "u")
			late := upOf(t, n.Flush(now))
			now = now.Add(400 * time.Millisecond)
			check(n, now, "another")
			answerShare(t, n, now, 2, half)
			if c.answers {
				receiveShare(t, n, now, late, 2, half)
			}
			now = now.Add(c.waits)
			sh := n.shard(keyOf(n, "u")).find(keyOf(n, "u")).block.share
			shape := shapeOf(n.Rules().Rules()[0].Rates[0])
			n.hearHot(now.UnixNano(), now.UnixNano(), &shape, &deltasync.HotKey{Key: keyOf(n, "u"), Totals: deltasync.Totals{Share: &deltasync.Share{Omega: 0.5, Demand: 20, Window: 20, Kept: 1}}}, 2)
			if took := sh.told.Kept == 1; took == c.alone {
				t.Errorf("it took the share that was pushed: %t, want %t", took, !c.alone)
			}
			if got := through(n, now, "u", 300); c.alone && (got < 40 || got > 49) || !c.alone && got < 60 {
				t.Errorf("%d of 100 admitted; want its half, less 1, where it goes by that (%t), else more", got, c.alone)
			}
		})
	}
}

// Who leaves says so until he is answered who has the lane; or what it had is kept for it
// by him, who hears of it no more.
func TestLeaveIsToldToTheOwner(t *testing.T) {
	n, _ := sharing(t, &deltasync.Share{Omega: 0.5, Sum: 1, Demand: 1, Window: 1}, perUser(adaptive(aHundred)))
	now := start.Add(1500 * time.Millisecond)
	check(n, now, "u")
	answerShare(t, n, now, 2, nil)
	for _, status := range []deltasync.Status{deltasync.StatusNotOwner, deltasync.StatusOK} {
		now = now.Add(n.cfg.Interval)
		up := upOf(t, n.Leave(now))
		if up.Features&deltasync.FeatureLeaves == 0 {
			t.Fatalf("it leaves and says %+v", up)
		}
		down := deltasync.Down{
			Status: status, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 1, LiveRegions: 2, LiveEdges: 1, Regions: 2,
			EchoSentAt: up.SentAt, ReceivedAt: up.SentAt, SentAt: up.SentAt, Totals: make([]deltasync.Totals, len(up.Sections)),
		}
		b, err := down.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Receive(now, 0, b); err != nil {
			t.Fatal(err)
		}
		if got, want := n.Left(now), status == deltasync.StatusOK; got != want {
			t.Errorf("answered %v: it may go is %t, want %t", status, got, want)
		}
	}
}

// In a cut a key that is far from its limit takes no more memory until it has used an equal part of that.
func TestKeysStayThinInACut(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Algorithm: "fixed_window", Limit: 100, Per: time.Hour, Consistency: "adaptive"}))
	hear := func(live int) {
		n.cluster.heard(&deltasync.Down{Regions: 5, LiveRegions: live, LiveEdges: 2, Between: 80 * time.Millisecond}, start.UnixNano())
	}
	hear(5)
	if got := through(n, start, "u", 7); got != 7 {
		t.Fatal(got)
	}
	hear(2)
	for range 10 { // the whole ledger
		n.Tick(start)
	}
	key := keyOf(n, "u")
	for used := 8; used < 13; used++ {
		check(n, start, "u")
		if thin := n.shard(key).find(key).sparse(); thin != (used <= 10) {
			t.Errorf("with %d of 100 used at one of ten edges, a cut has it be thin: %v", used, thin)
		}
	}
}
