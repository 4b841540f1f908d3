package rlqs

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
	"github.com/spillgate/spillgate/test/alone"
)

// meetingWorld has users with a limit each under one of all, and a data plane that does so with
// what it was assigned nothing for; nil: it lets that pass, as Envoy does.
func meetingWorld(t *testing.T, cfg Config, settings dataplane.Settings) (*world, func(user string) bool) {
	all, own := perUser(fixed(1000, 10*time.Second)), perUser(fixed(5000, 10*time.Second))
	all.Rates[0].Algorithm = "sub_windows"
	all.Name, all.Key, own.Group = "all", nil, "own"
	w := newWorld(t, cfg, all, own)
	settings.ExpiredFor, settings.Fallback = time.Hour, denyAll
	p := w.join("a", 0, settings)
	return w, func(user string) bool { return p.Allow(w.now, map[string]string{"user": user}) }
}

// behaviours are those of data planes which go by their timer or not, and let pass what they
// were assigned nothing for, or deny it.
func behaviours(t *testing.T, each func(t *testing.T, settings dataplane.Settings)) {
	for _, s := range []dataplane.Settings{{}, {ByTimer: true}, {NoAssignment: denyAll}, {ByTimer: true, NoAssignment: denyAll}} {
		t.Run(fmt.Sprintf("by timer %t, first ones pass %t", s.ByTimer, s.NoAssignment == nil), func(t *testing.T) { each(t, s) })
	}
}

// TestNamesThatComeOnce: buckets that clients invent, a request each, hold hardly more of a
// limit of all than they ask for, and so leave an honest user his.
func TestNamesThatComeOnce(t *testing.T) {
	alone.Mark(t)
	for _, places := range []int{0, 500} {
		behaviours(t, func(t *testing.T, settings dataplane.Settings) {
			w, ask := meetingWorld(t, Config{MaxStreamBuckets: places}, settings)
			n, admitted := 0, 0
			for second := range 60 {
				before := admitted
				w.run(time.Second, func() {
					if w.now.Sub(start)%(50*time.Millisecond) != 0 { // 20 a second of each
						return
					}
					n++
					ask(fmt.Sprint("invented", n))
					if ask("honest") {
						admitted++
					}
				})
				if second >= 5 && admitted-before < 18 {
					t.Errorf("second %d: %d of 20 are admitted, of a limit of which 40 %% are asked for", second, admitted-before)
				}
			}
			if got := len(w.book.meetings); got == 0 || got > 1+len(w.book.buckets) || places > 0 && got > n/2 {
				t.Errorf("%d counters are known after %d names, of %d buckets", got, n, len(w.book.buckets))
			}
			for _, p := range w.pops {
				p.reset()
			}
			if len(w.book.meetings) != 0 {
				t.Errorf("%d counters are known of no stream", len(w.book.meetings))
			}
		})
	}
}

// TestManyUsersOfOneLimit: users who seldom ask, of a limit of all that is half used. Of the
// first request of each the data plane decides by itself, and it does not count.
func TestManyUsersOfOneLimit(t *testing.T) {
	alone.Mark(t)
	behaviours(t, func(t *testing.T, settings dataplane.Settings) {
		for _, users := range []int{10, 100, 1000} {
			w, ask := meetingWorld(t, Config{}, settings)
			rnd := rand.New(rand.NewPCG(1, 2))
			asked, admitted, known := 0, 0, map[string]bool{}
			w.run(80*time.Second, func() {
				if w.now.Sub(start)%(20*time.Millisecond) != 0 { // 50 a second
					return
				}
				name := fmt.Sprint("user", rnd.IntN(users))
				passed := ask(name)
				if !known[name] {
					known[name] = true
					return
				}
				asked++
				if passed {
					admitted++
				}
			})
			if part := float64(admitted) / float64(asked); part < 0.9 {
				t.Errorf("%d users: %.2f of the requests are admitted, of a limit that is half asked for", users, part)
			} else {
				t.Logf("%d users: %.2f are admitted", users, part)
			}
		}
	})
}

// TestUsersWhoAskSeldom: each of many asks again after a while, of a limit of all that has room
// for a part of them or for all: no window has more than the limit and what was outstanding when
// it began, and those who ask again are admitted what there is room for.
func TestUsersWhoAskSeldom(t *testing.T) {
	alone.Mark(t)
	behaviours(t, func(t *testing.T, settings dataplane.Settings) {
		for _, c := range []struct {
			users int
			gap   time.Duration
			least float64 // of what they ask for, or of the limit
		}{
			{40, 7 * time.Second, 0.99},
			{100, 50 * time.Second, 0.99},
			{300, 3 * time.Second, 0.8}, // just the limit
			{350, 7 * time.Second, 0.99},
			{1000, 7 * time.Second, 0.9},
			{2000, 7 * time.Second, 0.9},
			{1500, 30 * time.Second, 0.5}, // more are at rest than the limit has room for
		} {
			if c.users > 500 && !settings.ByTimer { // it reports far more often, and is as slow
				continue
			}
			w, ask := meetingWorld(t, Config{}, settings)
			type moment struct{ admitted, outstanding uint64 }
			var history []moment
			asked, admitted, next, late := 0, uint64(0), 0.0, uint64(0)
			const lasts, look = 100 * time.Second, 100 * time.Millisecond
			w.run(lasts, func() {
				for next += float64(c.users) / c.gap.Seconds() * step.Seconds(); next >= 1; next-- {
					asked++
					if ask(fmt.Sprint("u", asked%c.users)) {
						admitted++
					}
				}
				if w.now.Sub(start) == lasts/2 {
					late = admitted
				}
				if w.now.Sub(start)%look != 0 {
					return
				}
				history = append(history, moment{admitted, w.outstanding()})
				const window = int(10 * time.Second / look)
				if i := len(history) - 1 - window; i >= int(2*c.gap/look) {
					if got := admitted - history[i].admitted; got > 1000+history[i].outstanding {
						t.Fatalf("%d users, each once in %v: %d admitted in the 10 s until %v, of 1000 and %d that were outstanding", c.users, c.gap, got, w.now.Sub(start), history[i].outstanding)
					}
				}
			})
			most := uint64(0)
			for _, m := range history[len(history)/2:] {
				most = max(most, m.outstanding)
			}
			of := min(100, float64(c.users)/c.gap.Seconds()) * (lasts / 2).Seconds()
			part := float64(admitted-late) / of
			t.Logf("%d users, each once in %v: %.2f of what there is room for, up to %d outstanding", c.users, c.gap, part, most)
			if part < c.least || part > 1.1 {
				t.Errorf("%d users, each once in %v: %.2f of what there is room for is admitted, want %v", c.users, c.gap, part, c.least)
			}
			if most > 1600 {
				t.Errorf("%d users, each once in %v: %d are outstanding of a limit of 1000", c.users, c.gap, most)
			}
		}
	})
}

// TestSeldomAndInBursts: the limit of a user holds though he asks seldom, behind one data plane
// or several that let first requests pass, with others in a limit of all or without.
func TestSeldomAndInBursts(t *testing.T) {
	alone.Mark(t)
	for _, c := range []struct {
		name                  string
		rate                  limit.RateSpec
		planes, burst, others int
		gap, lasts            time.Duration
		most                  int
		least                 int
	}{
		{"two planes", fixed(5, time.Minute), 2, 1, 0, 7 * time.Second, 5 * time.Minute, 25, 24},
		{"four planes", fixed(5, time.Minute), 4, 1, 0, 7 * time.Second, 5 * time.Minute, 28, 24},
		{"four planes, seldom", fixed(5, time.Minute), 4, 1, 0, 12 * time.Second, 5 * time.Minute, 28, 24},
		{"an hour", fixed(100, time.Hour), 6, 3, 0, 7 * time.Second, time.Hour, 110, 99},
		{"an hour, ten planes", fixed(100, time.Hour), 10, 3, 0, 7 * time.Second, time.Hour, 130, 99},
		{"in a crowd", fixed(5, time.Minute), 1, 5, 60, 7 * time.Second, 5 * time.Minute, 25, 24},
		{"less than once a minute", fixed(5, time.Hour), 1, 1, 0, 70 * time.Second, time.Hour, 5, 5},
		{"bursts less than once a minute", fixed(100, time.Hour), 1, 20, 0, 70 * time.Second, time.Hour, 100, 60},
		{"bursts of more than the limit", fixed(5, time.Minute), 1, 20, 0, 65 * time.Second, 30 * time.Minute, 150, 20},
		{"a day", fixed(100, 24*time.Hour), 2, 30, 0, 20 * time.Minute, 3 * time.Hour, 120, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules := []limit.RuleSpec{perUser(c.rate)}
			if c.others > 0 {
				all := perUser(limit.RateSpec{Limit: 1000, Per: 10 * time.Second})
				all.Name, all.Key, rules[0].Group = "all", nil, "own"
				rules = append(rules, all)
			}
			w := newWorld(t, Config{}, rules...)
			for i := range c.planes {
				w.join(fmt.Sprint("p", i), 0, dataplane.Settings{ByTimer: true, ExpiredFor: time.Hour, Fallback: denyAll})
			}
			got := 0
			w.run(c.lasts, func() {
				for i := range 1 + c.others {
					if (w.now.Sub(start)+time.Duration(i)*100*time.Millisecond)%c.gap != 0 {
						continue
					}
					for _, p := range w.pops {
						for range c.burst {
							if p.Allow(w.now, map[string]string{"user": fmt.Sprint("u", i)}) && i == 0 {
								got++
							}
						}
					}
				}
			})
			t.Logf("%d are admitted in %v", got, c.lasts)
			if got > c.most || got < c.least {
				t.Errorf("%d are admitted in %v, want %d to %d", got, c.lasts, c.least, c.most)
			}
		})
	}
}

// Who wanted more than it had keeps its bucket at rest though a data plane has many: were it
// forgotten once its limit has room again, all of the next burst would pass.
func TestBurstsBesideManyBuckets(t *testing.T) {
	w := newWorld(t, Config{MaxStreamBuckets: 100}, perUser(fixed(5, time.Minute)))
	p := w.join("a", 0, dataplane.Settings{ByTimer: true, ExpiredFor: time.Hour, Fallback: denyAll})
	got := 0
	w.run(10*time.Minute, func() {
		if w.now.Sub(start)%(30*time.Second) == 0 {
			for i := range 30 {
				p.Allow(w.now, map[string]string{"user": fmt.Sprint("other", i)})
			}
		}
		if w.now.Sub(start)%(65*time.Second) == 0 {
			for range 20 {
				if p.Allow(w.now, map[string]string{"user": "u"}) {
					got++
				}
			}
		}
	})
	if got < 20 || got > 50 { // the first 20, as nothing was assigned yet
		t.Errorf("%d are admitted of bursts of 20 in 10 minutes, want 20 to 50", got)
	}
}

// TestPlacesRunOut: of more users than there are places, whose limits are used up, those who have
// none are denied as the others are; but who asks less than once a minute has a first request
// each time.
func TestPlacesRunOut(t *testing.T) {
	alone.Mark(t)
	for _, c := range []struct {
		users int
		gap   time.Duration
		most  float64 // of what they ask for
	}{{200, 20 * time.Second, 0}, {80, 90 * time.Second, 0}, {200, 90 * time.Second, 1}} {
		w := newWorld(t, Config{MaxStreamBuckets: 100}, perUser(fixed(5, time.Hour)))
		p := w.join("a", 0, dataplane.Settings{ByTimer: true, ExpiredFor: time.Hour, Fallback: denyAll})
		ask := func(i int) bool { return p.Allow(w.now, map[string]string{"user": fmt.Sprint("u", i)}) }
		for i := range c.users {
			for range 5 {
				ask(i)
			}
			w.run(c.gap/time.Duration(c.users)/step*step, nil)
		}
		asked, admitted := 0, 0
		for range 5 {
			for i := range c.users {
				if asked++; ask(i) {
					admitted++
				}
				w.run(c.gap/time.Duration(c.users)/step*step, nil)
			}
		}
		part := float64(admitted) / float64(asked)
		t.Logf("%d users of 100 places, each once in %v: %.2f of the requests pass, of none", c.users, c.gap, part)
		if part > c.most {
			t.Errorf("%d users of 100 places, each once in %v: %.2f of the requests pass, want %v", c.users, c.gap, part, c.most)
		}
	}
}

// The counters of rules that are gone are forgotten with the buckets that met in them.
func TestMeetingsOverReloads(t *testing.T) {
	w, ask := meetingWorld(t, Config{}, dataplane.Settings{})
	w.run(2*time.Second, func() { ask("u1") })
	other := limit.Document{Namespace: "local", Rules: []limit.RuleSpec{perUser(fixed(10, time.Minute))}}
	set, err := limit.Compile(other)
	if err != nil {
		t.Fatal(err)
	}
	w.node.SetRules(set)
	w.run(2*time.Second, func() { ask("u2") })
	w.pops[0].reset()
	if len(w.book.meetings) != 0 {
		t.Errorf("%d counters are known of no stream", len(w.book.meetings))
	}
}

// TestManyUsersAtManyPlanes: a user has a bucket at each data plane, and so many tokens may be
// held at rest, by all of them together, as a limit of all has. Where there are more, the others
// are denied when they ask after a rest, though the limit is not used up.
func TestManyUsersAtManyPlanes(t *testing.T) {
	alone.Mark(t)
	for _, c := range []struct {
		planes, users int
		part          float64 // of the limit that is asked for
		least         float64 // of what is asked, a bucket's first request not counted
	}{
		{1, 300, 0.5, 0.88}, {3, 300, 0.5, 0.7}, {10, 300, 0.2, 0.45}, {10, 300, 0.5, 0.35}, {1, 3000, 0.5, 0.35},
	} {
		all, own := perUser(limit.RateSpec{Limit: 1000, Per: 10 * time.Second}), perUser(fixed(5000, 10*time.Second))
		all.Name, all.Key, own.Group = "all", nil, "own"
		w := newWorld(t, Config{}, all, own)
		for i := range c.planes {
			w.join(fmt.Sprint("h", i), 0, dataplane.Settings{ByTimer: true, ExpiredFor: time.Hour, Fallback: denyAll, NoAssignment: denyAll})
		}
		rnd := rand.New(rand.NewPCG(1, 5))
		known := map[[2]int]bool{}
		next, asked, admitted, most := 0.0, 0, 0, uint64(0)
		w.run(200*time.Second, func() {
			for next += c.part * 100 * step.Seconds(); next >= 1; next-- {
				at := [2]int{rnd.IntN(c.planes), rnd.IntN(c.users)}
				ok := w.pops[at[0]].Allow(w.now, map[string]string{"user": fmt.Sprint("u", at[1])})
				if known[at] && w.now.Sub(start) > 100*time.Second {
					if asked++; ok {
						admitted++
					}
				}
				known[at] = true
			}
			if w.now.Sub(start)%time.Second == 0 {
				most = max(most, w.outstanding())
			}
		})
		got := float64(admitted) / float64(asked)
		t.Logf("%d users at %d planes, who ask for %.1f of the limit: %.2f are admitted; %d of 1000 outstanding at the most", c.users, c.planes, c.part, got, most)
		if got < c.least || most > 1500 {
			t.Errorf("%d users at %d planes, who ask for %.1f of the limit: %.2f are admitted, want %.2f; %d of 1000 outstanding, want 1500 at the most", c.users, c.planes, c.part, got, c.least, most)
		}
	}
}
