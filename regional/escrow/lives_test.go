package escrow_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// An edge that is started anew each day, within one window: its lives before become one, which has
// what they spent until all of it is free, and none of them has it.
func TestLivesBecomeOne(t *testing.T) {
	const month, all = 31 * 24 * time.Hour, 10_000
	o := newOffice(t)
	o.longest = month
	a := o.authority()
	claim := func(edge string, holder, granted, returned, want uint64) deltasync.Grant {
		t.Helper()
		return o.claimOfEdge(a, edge, deltasync.Claim{Holder: holder, Limit: all, Lasts: month, Granted: granted, Returned: returned, Want: want})
	}
	claim("other", 1000, 0, 0, 0) // the log begins
	o.boot += 2 * month
	lives := uint64(0)
	for range 25 {
		lives++
		g := claim("e1", lives, 0, 0, 10)
		if g.Flags&deltasync.GrantVoid != 0 || g.Granted < 10 {
			t.Fatalf("life %d is granted %+v, want what it wants", lives, g)
		}
		claim("e1", lives, g.Granted, g.Granted-1, 0) // it spends one
		o.boot += 24 * time.Hour
		if lives%10 == 0 {
			a = o.authority()
		}
	}
	if g := claim("e1", 3, 5000, 0, 10); g.Flags&deltasync.GrantVoid == 0 {
		t.Errorf("a life of long ago is granted %+v, want void", g)
	}
	if g := claim("other", 1001, 0, 0, all); g.Granted != all-lives {
		t.Errorf("another is granted %d, want %d: all but what %d lives spent", g.Granted, all-lives, lives)
	}
	o.boot += month + month/50 // the lives are over; of the last nobody said anything since
	if g := claim("third", 1002, 0, 0, all); g.Granted != all {
		t.Errorf("a window later a third is granted %d, want all %d", g.Granted, all)
	}
}

// What many lives spent comes free as their windows end, though others come all the time.
func TestWhatLivesSpentComesFree(t *testing.T) {
	for name, c := range map[string]struct {
		window, every time.Duration
		each          uint64
	}{
		"twice a day, of a month":            {31 * 24 * time.Hour, 12 * time.Hour, 100}, // 6200 in each
		"each five minutes, of a day":        {24 * time.Hour, 5 * time.Minute, 10},      // 2880
		"by the hour, of a day, nearly half": {24 * time.Hour, time.Hour, 200},           // 4800
	} {
		t.Run(name, func(t *testing.T) {
			const all = 10_000
			o := newOffice(t)
			o.longest = c.window
			a := o.authority()
			claim := func(edge string, holder, granted, returned, want uint64) deltasync.Grant {
				t.Helper()
				return o.claimOfEdge(a, edge, deltasync.Claim{Holder: holder, Limit: all, Lasts: c.window, Granted: granted, Returned: returned, Want: want})
			}
			claim("other", 1<<40, 0, 0, 0) // the log begins
			o.boot += 2 * c.window
			life := uint64(0)
			for end := o.boot + 6*c.window; o.boot < end; o.boot += c.every {
				life++
				g := claim("e1", life, 0, 0, c.each)
				if g.Granted < c.each {
					t.Fatalf("life %d is granted %+v, want %d", life, g, c.each)
				}
				claim("e1", life, g.Granted, g.Granted-c.each, 0)
			}
		})
	}
}
