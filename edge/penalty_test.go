package edge

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// punishing is two a second, and a minute of penalty.
func punishing() limit.RuleSpec {
	rule := perUser(limit.RateSpec{Limit: 2, Per: time.Second})
	rule.Penalty = limit.Penalty{For: time.Minute}
	return rule
}

// onlyDelta is the one delta of a frame.
func onlyDelta(t *testing.T, up *deltasync.Up) deltasync.Delta {
	t.Helper()
	if len(up.Sections) != 1 || len(up.Sections[0].Deltas) != 1 {
		t.Fatalf("frame %+v, want one delta", up.Sections)
	}
	return up.Sections[0].Deltas[0]
}

// offend has a user denied who has used nothing, and returns when the penalty
// ends.
func offend(t *testing.T, n *Node, now time.Time, user string) int64 {
	t.Helper()
	if d, _ := take(t, n, now, user, 3); d.Allowed {
		t.Fatalf("3 of 2 a second: %+v, want denied", d)
	}
	return now.Add(time.Minute).UnixNano()
}

// pushUntil pushes the end of a penalty of a user.
func pushUntil(t *testing.T, n *Node, now time.Time, user string, until int64) {
	t.Helper()
	hot := deltasync.Hot{Region: "eu", LiveRegions: 1, Sections: []deltasync.HotSection{{
		Shape: shapeOf(n.Rules().Rules()[0].Rates[0]),
		Keys:  []deltasync.HotKey{{Key: keyOf(n, user), Totals: deltasync.Totals{Until: until}}},
	}}}
	b, err := hot.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ReceiveHot(now, b); err != nil {
		t.Fatal(err)
	}
}

// A penalty goes out at once, and once; a lost frame is told again, a refused one
// a second later, all that is live when the region's store is new, and what
// rests now and then.
func TestPenaltyIsTold(t *testing.T) {
	n := inStep(newNode(t, Config{}, punishing()))
	until := offend(t, n, start, "u")
	now := start
	told := func(what string) *deltasync.Up {
		t.Helper()
		up := upOf(t, n.Flush(now))
		if d := onlyDelta(t, up); d.Until != until || len(d.Cells) > 0 || d.Flags&deltasync.FlagTouch != 0 {
			t.Fatalf("%s: sent %+v, want the penalty and no question", what, d)
		}
		return up
	}
	later := func(d time.Duration) {
		now = now.Add(d)
		for range 10 { // a whole round
			n.Tick(now)
		}
	}
	if !n.Urgent() {
		t.Error("a penalty is not urgent")
	}
	if keys := n.unsent(); keys != 1 {
		t.Errorf("%d keys unsent, want the 1 punished", keys)
	}
	up := told("at once")
	if d := onlyDelta(t, up); d.Flags&deltasync.FlagUrgent == 0 {
		t.Errorf("sent with the flags %d, want it urgent", d.Flags)
	}
	n.Lost(now, 0, up.Seq)
	later(longestPause)
	up = told("after a loss")
	answerStatus(t, n, now, up, deltasync.StatusOverloaded, deltasync.Totals{})
	later(time.Second + 1)
	up = told("after a refusal")
	answer(t, n, now, up, deltasync.Totals{})
	if keys := n.unsent(); keys != 0 {
		t.Errorf("%d keys unsent once the region has the penalty, want none", keys)
	}
	take(t, n, now, "u", 1) // denied, and asks
	up = upOf(t, n.Flush(now))
	if d := onlyDelta(t, up); d.Until != 0 || d.Flags&deltasync.FlagTouch == 0 {
		t.Errorf("another denial sends %+v, want a question and nothing told", d)
	}
	answer(t, n, now, up, deltasync.Totals{})

	if next := n.NextRefresh(); next.IsZero() || next.After(now.Add(6*time.Second)) {
		t.Errorf("NextRefresh = %v at %v, want it within seconds", next, now)
	}
	later(6 * time.Second)
	up = told("as a refresh")
	if d := onlyDelta(t, up); d.Flags&deltasync.FlagRefresh == 0 {
		t.Errorf("refreshed with the flags %d, want a refresh", d.Flags)
	}
	down := deltasync.Down{Status: deltasync.StatusOK, Region: "eu", Node: euNode, Seq: up.Seq, StoreEpoch: 2, Totals: []deltasync.Totals{{}}}
	b, err := down.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Receive(now, 0, b); err != nil {
		t.Fatal(err)
	}
	later(0)
	settle := told("to a new store")
	answer(t, n, now, settle, deltasync.Totals{})

	now = time.Unix(0, until)
	later(0)
	if got := n.NextRefresh(); !got.IsZero() {
		t.Errorf("NextRefresh after the penalty = %v, want none", got)
	}
	for _, o := range n.Flush(now) {
		var up deltasync.Up
		if err := up.UnmarshalBinary(o.Payload); err != nil || len(up.Sections) > 0 {
			t.Errorf("after the penalty: sent %+v, %v; want nothing", up.Sections, err)
		}
	}
	if n.Keys() != 0 {
		t.Errorf("%d keys after the penalty, want none", n.Keys())
	}
}

// A penalty that finds no room in the outbox waits in the ledger.
func TestPenaltyWaitsForRoom(t *testing.T) {
	n := inStep(newNode(t, Config{}, punishing()))
	n.outboxes[0] = deltasync.NewOutbox(deltasync.OutboxConfig{MaxDeltas: 1})
	users := neighbours(n, 2) // of one shard: both are drained before one finds no room
	for _, user := range users {
		offend(t, n, start, user)
	}
	seen := map[deltasync.Key]bool{}
	for range users {
		up := upOf(t, n.Flush(start))
		if d := onlyDelta(t, up); d.Until != 0 {
			seen[d.Key] = true
		}
		answer(t, n, start, up, deltasync.Totals{})
	}
	if len(seen) != len(users) {
		t.Errorf("penalties of %d keys sent, want %d", len(seen), len(users))
	}
}

// Of a rate that stays at its edge the penalty does, too.
func TestPenaltyOfScopeEdgeStaysHome(t *testing.T) {
	rule := punishing()
	rule.Rates[0].Scope = "edge"
	n := newNode(t, Config{}, rule)
	offend(t, n, start, "u")
	if n.Urgent() || n.unsent() != 0 {
		t.Errorf("Urgent = %v, %d keys unsent; want nothing to tell", n.Urgent(), n.unsent())
	}
}

// What others tell holds here at once, until it is over and no longer, whether
// the key is live here or not; the later end holds, and none that is absurd.
func TestPenaltyIsHeard(t *testing.T) {
	ways := map[string]func(n *Node, now time.Time, until int64){
		"in a reply": func(n *Node, now time.Time, until int64) {
			answer(t, n, now, upOf(t, n.Flush(now)), deltasync.Totals{Until: until})
		},
		"in a push": func(n *Node, now time.Time, until int64) { pushUntil(t, n, now, "u", until) },
	}
	for way, hear := range ways {
		t.Run(way, func(t *testing.T) {
			n := newNode(t, Config{}, punishing())
			check(n, start, "u")
			minute := start.Add(time.Minute)
			hear(n, start, minute.UnixNano())
			if d := check(n, start, "u"); d.Allowed || d.RetryAfter != time.Minute {
				t.Fatalf("with room left: %+v, want denied for a minute", d)
			}
			if d := check(n, start, "other"); !d.Allowed {
				t.Fatalf("another user: %+v", d)
			}
			for _, u := range []int64{0, 1, start.Add(time.Second).UnixNano(), start.Add(-1).UnixNano()} {
				pushUntil(t, n, start, "u", u)
			}
			if d := check(n, minute.Add(-1), "u"); d.Allowed {
				t.Fatalf("a nanosecond before the end: %+v, want denied", d)
			}
			if d := check(n, minute, "u"); !d.Allowed {
				t.Fatalf("at the end: %+v, want allowed", d)
			}
			pushUntil(t, n, minute, "u", minute.UnixNano()) // told late
			if d := check(n, minute, "u"); !d.Allowed {
				t.Fatalf("when it was told again at its end: %+v, want allowed", d)
			}
			later := minute.Add(10 * time.Second)
			pushUntil(t, n, later, "u", math.MaxInt64)
			if d := check(n, later, "u"); d.Allowed || d.RetryAfter > limit.MaxWindow {
				t.Fatalf("told for ever: %+v, want denied for %v at most", d, limit.MaxWindow)
			}
		})
	}
}

// What is over when it is told leaves the record as it is.
func TestPenaltyThatIsOverChangesNothing(t *testing.T) {
	n := newNode(t, Config{}, punishing())
	check(n, start, "u")
	r := n.shard(keyOf(n, "u")).find(keyOf(n, "u"))
	was := *r
	n.shard(keyOf(n, "u")).obey(r, start.UnixNano(), start.UnixNano())
	if *r != was {
		t.Errorf("the record became %+v, was %+v", *r, was)
	}
}

// A key that was about to ask at leisure is in a hurry once it is punished.
func TestPenaltyIsUrgentBesideAQuestion(t *testing.T) {
	n := inStep(newNode(t, Config{}, punishing()))
	check(n, start, "u")
	settleFrames(n, start)
	s := n.shard(keyOf(n, "u"))
	s.mark(s.find(keyOf(n, "u")), touch)
	offend(t, n, start, "u")
	if !n.Urgent() {
		t.Error("a penalty is not urgent")
	}
	if d := onlyDelta(t, upOf(t, n.Flush(start))); d.Flags != deltasync.FlagUrgent {
		t.Errorf("sent with the flags %d, want it urgent", d.Flags)
	}
}

// A penalty that nobody was told of is forgotten after one that was told.
func TestUntoldPenaltyIsForgottenLast(t *testing.T) {
	for _, told := range []int{0, 1} {
		n := inStep(newNode(t, Config{}, punishing()))
		users := neighbours(n, 3)
		s := n.shard(keyOf(n, users[0]))
		s.max = 2
		offend(t, n, start, users[told])
		answer(t, n, start, upOf(t, n.Flush(start)), deltasync.Totals{})
		offend(t, n, start, users[1-told])
		check(n, start, users[2])
		if s.find(keyOf(n, users[told])) != nil || s.find(keyOf(n, users[1-told])) == nil {
			t.Errorf("with key %d told: it is still there, or the other is not", told)
		}
	}
}

// The later end holds, whoever set it; but none is later than the rule's penalty
// would end, beside a second for clocks that differ: that is of a clock that was
// set back.
func TestLaterPenaltyHolds(t *testing.T) {
	n := newNode(t, Config{}, punishing())
	offend(t, n, start, "u")
	for _, step := range []struct{ told, want time.Duration }{{59 * time.Second, time.Minute}, {60500 * time.Millisecond, 60500 * time.Millisecond}, {time.Minute, 60500 * time.Millisecond}, {time.Hour, 61 * time.Second}} {
		pushUntil(t, n, start, "u", start.Add(step.told).UnixNano())
		if d := check(n, start, "u"); d.Allowed || d.RetryAfter != step.want {
			t.Errorf("told %v: %+v, want denied for %v", step.told, d, step.want)
		}
	}
}

// The penalty of a key that is not live here is kept in the view, past the end
// of its window, and so is that of a key that is forgotten.
func TestPenaltyOfKeysNotLive(t *testing.T) {
	n := newNode(t, Config{View: mapView{}}, punishing())
	pushUntil(t, n, start, "u", start.Add(time.Minute).UnixNano())
	pushUntil(t, n, start, "u", start.Add(time.Second).UnixNano())
	if d := check(n, start.Add(30*time.Second), "u"); d.Allowed || d.RetryAfter != 30*time.Second {
		t.Fatalf("first request here: %+v, want denied for 30 s", d)
	}
	s := n.shard(keyOf(n, "u"))
	for i := range s.table {
		if s.table[i].key == keyOf(n, "u") {
			n.forget(s, i, start.Add(31*time.Second).UnixNano())
			break
		}
	}
	if n.Keys() != 0 {
		t.Fatal("the key is not forgotten")
	}
	if d := check(n, start.Add(40*time.Second), "u"); d.Allowed || d.RetryAfter != 20*time.Second {
		t.Fatalf("after it was forgotten: %+v, want denied for 20 s", d)
	}
	if d := check(n, start.Add(time.Minute), "u"); !d.Allowed {
		t.Fatalf("at the end: %+v, want allowed", d)
	}
}

// ttlView keeps how long it was asked to keep totals.
type ttlView struct {
	mapView
	ttl time.Duration
}

func (v *ttlView) Set(k deltasync.Key, totals Totals, ttl time.Duration) {
	v.mapView.Set(k, totals, ttl)
	v.ttl = ttl
}

// The view is told to keep a penalty as long as it lasts.
func TestViewKeepsPenalties(t *testing.T) {
	view := &ttlView{mapView: mapView{}}
	n := newNode(t, Config{View: view}, punishing())
	pushUntil(t, n, start, "u", start.Add(time.Minute).UnixNano())
	if view.ttl != time.Minute {
		t.Errorf("a pushed penalty of a minute is kept for %v", view.ttl)
	}
	check(n, start.Add(10*time.Second), "u")
	s := n.shard(keyOf(n, "u"))
	for i := range s.table {
		if s.table[i].key != 0 {
			n.forget(s, i, start.Add(10*time.Second).UnixNano())
			break
		}
	}
	if view.ttl != 50*time.Second {
		t.Errorf("50 s of a penalty are kept for %v", view.ttl)
	}
}

// A rule without a penalty heeds none; one that loses it lets in again whom it
// kept out, and a trial denies nobody.
func TestPenaltyIsTheRules(t *testing.T) {
	plain := punishing()
	plain.Penalty = limit.Penalty{}
	n := newNode(t, Config{View: mapView{}}, plain)
	hour := start.Add(time.Hour).UnixNano()
	pushUntil(t, n, start, "new", hour)
	check(n, start, "u")
	pushUntil(t, n, start, "u", hour)
	for _, user := range []string{"new", "u"} {
		if d := check(n, start, user); !d.Allowed {
			t.Errorf("%s, under a rule without penalties: %+v, want allowed", user, d)
		}
	}

	n = newNode(t, Config{}, punishing())
	offend(t, n, start, "u")
	n.SetRules(compile(t, plain))
	if d := check(n, start, "u"); !d.Allowed {
		t.Errorf("after the rule lost its penalty: %+v, want allowed", d)
	}
	n.SetRules(compile(t, punishing()))
	if d := check(n, start, "u"); !d.Allowed {
		t.Errorf("after it came back: %+v, want allowed: the old one is gone", d)
	}

	trial := punishing()
	trial.Mode = "shadow"
	n = newNode(t, Config{}, trial)
	check(n, start, "u")
	pushUntil(t, n, start, "u", hour)
	if d := check(n, start, "u"); !d.Allowed || d.Zone != limit.ZoneShadow {
		t.Errorf("on trial: %+v, want allowed, and said that it would not be", d)
	}
}

// Who hears of a penalty sends it on only with what it sends in full: a region of
// thousands of edges would hear of it from each.
func TestHeardPenaltyIsNotSentOnAtOnce(t *testing.T) {
	n := inStep(newNode(t, Config{}, punishing()))
	check(n, start, "u")
	answer(t, n, start, upOf(t, n.Flush(start)), deltasync.Totals{Until: start.Add(time.Minute).UnixNano()})
	if n.unsent() != 0 {
		t.Error("a penalty that was heard is to be sent")
	}
	now := start.Add(6 * time.Second)
	for range 10 {
		n.Tick(now)
	}
	if d := onlyDelta(t, upOf(t, n.Flush(now))); d.Until != start.Add(time.Minute).UnixNano() {
		t.Errorf("refreshed %+v, want the penalty in it", d)
	}
}

// A bucket that has room long before a penalty ends tells the penalty.
func TestPenaltyOfABucket(t *testing.T) {
	rule := perUser(tokens(1, limit.Flow{Units: 10, Per: time.Second}))
	rule.Penalty.For = time.Minute
	n := newNode(t, Config{}, rule)
	check(n, start, "u")
	for _, after := range []time.Duration{0, time.Second, 59 * time.Second} {
		if d := check(n, start.Add(after), "u"); d.Allowed || d.RetryAfter != time.Minute-after {
			t.Errorf("%v after: %+v, want denied for %v", after, d, time.Minute-after)
		}
	}
	if d := check(n, start.Add(time.Minute), "u"); !d.Allowed {
		t.Errorf("after the penalty: %+v", d)
	}
}

// Whoever is denied for what others may spend, or for a limit that his own request named,
// has not offended: the key has room for others, who are not kept out.
func TestPenaltyIsForTheRulesOwnLimit(t *testing.T) {
	reserving := limit.RuleSpec{
		Name: "api", Rates: []limit.RateSpec{{Limit: 10, Per: time.Minute}}, Penalty: limit.Penalty{For: 5 * time.Minute},
		Classes: limit.ClassesSpec{From: "header.X-Class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": 30}},
	}
	n := newNode(t, Config{}, reserving)
	admitted := map[string]int{}
	for _, class := range []string{"batch", "critical"} {
		for range 20 {
			req := n.Rules().Only().NewRequest()
			req.Set("header.X-Class", class)
			if n.Check(start, req).Allowed {
				admitted[class]++
			}
			req.Release()
		}
	}
	if admitted["batch"] != 7 || admitted["critical"] != 3 {
		t.Errorf("admitted %v, want 7 of batch, and the 3 reserved for critical", admitted)
	}

	n = newNode(t, Config{}, punishing())
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Override(n.Rules().Rules()[0].Rates[0].Policy, 0)
	if d := n.Check(start, req); d.Allowed {
		t.Fatalf("by a limit of 0 that it named: %+v, want denied", d)
	}
	if d := check(n, start, "u"); !d.Allowed {
		t.Errorf("the next request, which names none: %+v, want allowed", d)
	}
}

// Nor has he whose class may not spend what is reserved, while this edge's share is used
// up beside that: of the limit itself most is left.
func TestPenaltyIsNotForSharesAndReserves(t *testing.T) {
	rule := perUser(adaptive(limit.RateSpec{Name: "r", Limit: 100, Per: time.Second}))
	rule.Classes = limit.ClassesSpec{From: "class", Order: []string{"batch", "critical"}, Reserve: map[string]float64{"critical": 90}}
	rule.Penalty = limit.Penalty{For: 5 * time.Minute}
	n, r := sharing(t, &deltasync.Share{Omega: 0.2, Sum: 1, Demand: 1, Window: 1}, rule)
	now := start.Add(1020 * time.Millisecond)
	ask := func(class string) limit.Decision {
		req := requestOf(n, "u")
		defer req.Release()
		req.Set("class", class)
		return n.Check(now, req)
	}
	for range 60 {
		ask("critical")
	}
	if d := ask("critical"); d.Allowed || !d.Basis.Short {
		t.Fatalf("critical: %+v, want it to be short of a share", d)
	}
	if d := ask("batch"); d.Allowed || d.Basis.Short {
		t.Fatalf("batch: %+v, want it denied for what is reserved", d)
	}
	if r.block.punished(now.UnixNano()) {
		t.Error("the key is kept out for it")
	}
}

// While no region answers a key has one place among those whose penalties are to be told, however
// often it offends, and none once its penalty is over.
func TestPenaltiesAreWithheldOnceForEachKey(t *testing.T) {
	n, now := newNode(t, Config{}, punishing()), start
	pass := func(lasts time.Duration) {
		for end := now.Add(lasts); now.Before(end); now = now.Add(time.Second) {
			for _, o := range n.Flush(now) {
				n.Lost(now, o.Lane, o.Seq)
			}
			n.Tick(now)
		}
	}
	for range 3 {
		for _, user := range []string{"a", "b"} {
			offend(t, n, now, user)
			pass(time.Second)
		}
		if len(n.withheld) != 2 || n.unsent() != 2 {
			t.Fatalf("%d penalties withheld, %d keys unsent; want 2", len(n.withheld), n.unsent())
		}
		pass(time.Minute)
	}
	if len(n.withheld) != 0 {
		t.Errorf("%d penalties withheld that are over", len(n.withheld))
	}
	until := offend(t, n, now, "a")
	pass(time.Second)
	at := now.UnixNano()
	n.clock.Heard(1, 1, at, at, at, at)
	n.Tick(now)
	if d := onlyDelta(t, upOf(t, n.Flush(now))); d.Until != until {
		t.Errorf("told %+v once a region answered, want the penalty until %d", d, until)
	}
}
