package trial

import (
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/sim/world"
)

// heardBy is a life of an edge that hears of a key.
type heardBy struct {
	life
	key deltasync.Key
}

// heard is when it did.
type heard struct {
	live bool      // it has counted the key, which stays live for as long as that counts
	last time.Time // it heard for the last time
	kept time.Time // likewise, while the key was live; of pushes, where its region answers
}

// onHeard notes of which keys an edge has heard.
func (t *trial) onHeard(s *world.Site, frame, message []byte) {
	t.bookLate(s)
	now := life{s.Name, s.Lives()}
	if frame == nil {
		c, hot := t.contactOf(s), deltasync.Hot{}
		answered := c.answered && t.w.Now().Sub(c.last) <= surelyAnswered
		if hot.UnmarshalBinary(message) == nil {
			for _, sec := range hot.Sections {
				for i := range sec.Keys {
					t.hears(heardBy{now, sec.Keys[i].Key}, answered)
				}
			}
		}
		return
	}
	var up deltasync.Up
	var down deltasync.Down
	if up.UnmarshalBinary(frame) != nil || down.UnmarshalBinary(message) != nil {
		return
	}
	t.answers(s, &down)
	answered := len(down.Totals)
	for _, sec := range up.Sections {
		for i := range sec.Deltas[:min(answered, len(sec.Deltas))] {
			t.hears(heardBy{now, sec.Deltas[i].Key}, true)
		}
		answered -= min(answered, len(sec.Deltas))
	}
}

// surelyAnswered is for how long since an answer an edge does not take its region to be silent: of
// that what is pushed may lack what it lacks of the edge.
const surelyAnswered = 250 * time.Millisecond

func (t *trial) hears(by heardBy, answered bool) {
	h := t.heard[by]
	if h == nil {
		h = &heard{}
		t.heard[by] = h
	}
	h.last = t.w.Now()
	if h.live && answered {
		h.kept = h.last
	}
}

// check has an edge decide, which must tell nobody and ask no store: invariant 17.
func (t *trial) check(edge string, req *limit.Request) (d limit.Decision) {
	t.alone(edge, func() { d = t.w.Node(edge).Check(t.w.NowAt(edge), req) })
	t.verifyContact(edge, &d)
	return d
}

// alone demands that who does something sends nothing, and asks no store.
func (t *trial) alone(who string, do func()) {
	sent, _ := t.w.Sent()
	asked := t.w.Asked()
	do()
	if now, _ := t.w.Sent(); now != sent || t.w.Asked() != asked {
		t.failf("17", "%s needs others for a decision: %d messages, %d calls of a store", who, now-sent, t.w.Asked()-asked)
	}
}

// verifyBasis holds what a decision says of itself to invariants 11 and 12: it is
// by the rules that the edge was given last, and as old as it says.
func (t *trial) verifyBasis(edge string, user int, d *limit.Decision) {
	if d.Rule == nil || d.Rate == nil {
		t.failf("12", "%s decides by no rule", edge)
		return
	}
	if want := t.wants(edge, d.Rate); d.Limit != want {
		t.failf("12", "%s decides by a limit of %d for %s, it was given %d", edge, d.Limit, d.Rate.Policy, want)
	}
	now := life{edge, t.w.Site(edge).Lives()}
	for _, c := range t.at(edge, user) {
		by := heardBy{now, c.key}
		h := t.heard[by]
		if c.rate.Name == d.Rate.Name {
			t.verifyAge(now, c, h, d.Basis.Age)
		}
		if h == nil {
			h = &heard{}
			t.heard[by] = h
		}
		// Of one that it never charged an edge has but what it was told, and may forget
		// it when that has left the window (seed 480); a bucket may have drained.
		h.live = of(c.byLife, now).Len() > 0 && !c.rate.Bucket()
	}
}

// countsYet says that something that an edge charged in this life is in the window by any
// clock: when a fixed window has ended, and nobody asks meanwhile, all of the key is
// forgotten, or born of an older view (seed 910040, were all trials strict).
func (t *trial) countsYet(by life, c *counter) bool {
	return len(of(c.byLife, by).From(c.rate.Reach(t.w.Now().Add(time.Second).UnixNano()), nil)) > 0
}

// verifyAge demands that the age told of a view is that of the last message about
// the key. Where keys compete a view may be older: of the key that was forgotten.
func (t *trial) verifyAge(by life, c *counter, h *heard, told time.Duration) {
	if t.late {
		return
	}
	edge := by.edge
	if told < 0 { // never
		if h != nil && !h.kept.IsZero() && !t.has[Evict] && t.countsYet(by, c) {
			t.failf("11", "%s says that it never heard of %s, it did %v ago", edge, c.user, t.w.Now().Sub(h.kept))
		}
		return
	}
	if h == nil || h.last.IsZero() {
		t.failf("11", "%s says that it heard of %s %v ago, it never did", edge, c.user, told)
		return
	}
	if age := t.w.Now().Sub(h.last); told < age-t.blur(age) {
		t.failf("11", "%s says that it heard of %s %v ago, it is %v", edge, c.user, told, age)
	}
	if age := t.w.Now().Sub(h.kept); !h.kept.IsZero() && !t.has[Evict] && t.countsYet(by, c) && told > age+t.blur(age) {
		t.failf("11", "%s says that it heard of %s %v ago, it did %v ago", edge, c.user, told, age)
	}
}

// blur is by how much a clock that is off, or is being corrected, may see an age
// wrong.
func (t *trial) blur(age time.Duration) time.Duration {
	b := 20*time.Millisecond + age/100
	switch {
	case t.has[ServerClock]: // which edges set theirs by
		b += 2*mostSet + 2*time.Second
	case t.has[ClockStep]:
		b += 2 * time.Second
	case t.has[Skew] || t.has[Drift]:
		b += 250 * time.Millisecond
	}
	return b + 2*t.stepped
}
