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

// meetingWorld has users with a limit each under one of all, and a data plane that lets pass
// what it was assigned nothing for, as Envoy does.
func meetingWorld(t *testing.T, byTimer bool) (*world, func(user string) bool) {
	all, own := perUser(fixed(1000, 10*time.Second)), perUser(fixed(5000, 10*time.Second))
	all.Rates[0].Algorithm = "sub_windows"
	all.Name, all.Key, own.Group = "all", nil, "own"
	w := newWorld(t, Config{}, all, own)
	p := w.join("a", 0, dataplane.Settings{ByTimer: byTimer, ExpiredFor: time.Hour, Fallback: denyAll})
	return w, func(user string) bool { return p.Allow(w.now, map[string]string{"user": user}) }
}

// TestNamesThatComeOnce: buckets that clients invent, a request each, hold hardly more of a
// limit of all than they ask for, and so leave an honest user his.
func TestNamesThatComeOnce(t *testing.T) {
	alone.Mark(t)
	for _, byTimer := range []bool{false, true} {
		w, ask := meetingWorld(t, byTimer)
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
				t.Errorf("by timer %t: second %d: %d of 20 are admitted, of a limit of which 40 %% are asked for", byTimer, second, admitted-before)
			}
		}
		if len(w.book.meetings) > n/2 || len(w.book.meetings) == 0 {
			t.Errorf("%d counters are known after %d names", len(w.book.meetings), n)
		}
		for _, p := range w.pops {
			p.reset()
		}
		if len(w.book.meetings) != 0 {
			t.Errorf("%d counters are known of no stream", len(w.book.meetings))
		}
	}
}

// TestManyUsersOfOneLimit: users who seldom ask, of a limit of all that is half used.
func TestManyUsersOfOneLimit(t *testing.T) {
	alone.Mark(t)
	for _, users := range []int{10, 100, 1000} {
		w, ask := meetingWorld(t, false)
		rnd := rand.New(rand.NewPCG(1, 2))
		asked, admitted := 0, 0
		w.run(time.Minute, func() {
			if w.now.Sub(start)%(20*time.Millisecond) != 0 { // 50 a second
				return
			}
			asked++
			if ask(fmt.Sprint("user", rnd.IntN(users))) {
				admitted++
			}
		})
		if part := float64(admitted) / float64(asked); part < 0.9 {
			t.Errorf("%d users: %.2f of the requests are admitted, of a limit that is half asked for", users, part)
		} else {
			t.Logf("%d users: %.2f are admitted", users, part)
		}
	}
}

// The counters of rules that are gone are forgotten with the buckets that met in them.
func TestMeetingsOverReloads(t *testing.T) {
	w, ask := meetingWorld(t, false)
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
