package regional

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

const ms = int64(time.Millisecond)

// parish is some members that hear each other at once.
type parish struct {
	t   *testing.T
	now int64
	all map[string]*members
	up  []string
}

func newParish(t *testing.T, names ...string) *parish {
	p := &parish{t: t, now: 1_790_000_000_000 * ms, all: map[string]*members{}}
	for _, name := range names {
		p.enter(name)
	}
	return p
}

func (p *parish) enter(name string) *members {
	m := newMembers("eu", name, 1, 64)
	m.join(p.now)
	p.all[name], p.up = m, append(p.up, name)
	return m
}

func (p *parish) beat(m *members, deaf func(from, to string) bool) {
	if m.listens(p.now) {
		return
	}
	for _, to := range p.up {
		if deaf == nil || !deaf(m.self.name, to) {
			if err := p.all[to].hear(p.now, &deltasync.Live{Region: "eu", Name: m.self.name, Incarnation: m.self.incarnation, Lanes: 64, Leaving: m.leaving}); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// pass lets time go by in steps of 20 ms.
func (p *parish) pass(d time.Duration, deaf func(from, to string) bool) {
	for end := p.now + int64(d); p.now < end; {
		p.now += 20 * ms
		for _, name := range p.up {
			m := p.all[name]
			m.assign(p.now)
			if p.now/ms%BeatEvery.Milliseconds() == 0 {
				p.beat(m, deaf)
			}
		}
	}
}

func (p *parish) kill(name string) {
	for i := range p.up {
		if p.up[i] == name {
			p.up = append(p.up[:i:i], p.up[i+1:]...)
			return
		}
	}
}

// dealt demands that each lane has exactly one owner, and returns them.
func (p *parish) dealt(when string) (owners [64]string) {
	p.t.Helper()
	for lane := range 64 {
		for _, name := range p.up {
			if p.all[name].owned.has(lane) {
				if owners[lane] != "" {
					p.t.Errorf("%s: lane %d is %s's and %s's", when, lane, owners[lane], name)
				}
				owners[lane] = name
			}
		}
		if owners[lane] == "" {
			p.t.Errorf("%s: lane %d is nobody's", when, lane)
		}
	}
	return owners
}

// Whoever lives shares all lanes, each is one's, and only those move that have to.
func TestLanesAreShared(t *testing.T) {
	p := newParish(t, "a")
	p.pass(time.Second, nil)
	one := p.dealt("one")
	p.enter("b")
	p.pass(time.Second, nil)
	two := p.dealt("two")
	p.enter("c")
	p.pass(time.Second, nil)
	three := p.dealt("three")
	for when, pair := range map[string][2][64]string{"b came": {one, two}, "c came": {two, three}} {
		moved := 0
		for lane := range 64 {
			if was, is := pair[0][lane], pair[1][lane]; was != is {
				if moved++; is != when[:1] {
					t.Errorf("%s: lane %d went from %s to %s", when, lane, was, is)
				}
			}
		}
		if least := 64 / (len(p.up) + 1); moved < least/2 {
			t.Errorf("%s: it got %d lanes of 64", when, moved)
		}
	}
	p.kill("b")
	p.pass(deadAfter+60*time.Millisecond, nil)
	if left := p.dealt("b is dead"); left == three {
		t.Error("nobody took over what was b's")
	}
	if taken := p.all["a"].taken + p.all["c"].taken; taken == 0 {
		t.Error("no takeover was counted")
	}
	c := p.all["c"]
	c.leave(p.now)
	p.beat(c, nil)
	p.kill("c")
	if owners := p.dealt("c left, at once"); owners != one {
		t.Errorf("owners are %v, want a alone", owners)
	}
	p.pass(2*time.Second, nil)
	if got := len(p.all["a"].others); got != 0 {
		t.Errorf("%d others are known, want none", got)
	}
}

// A newcomer owns nothing before it knows who lives, unless nobody answers it.
func TestNewcomerListens(t *testing.T) {
	p := newParish(t, "a")
	p.pass(time.Second, nil)
	b := p.enter("b")
	p.pass(deadAfter-40*time.Millisecond, nil)
	if b.owned != 0 {
		t.Errorf("it owns %d lanes before it has listened", b.owned.len())
	}
	p.dealt("while b listens")
	p.pass(40*time.Millisecond+BeatEvery, nil)
	p.dealt("b is there")
	alone := newMembers("eu", "z", 1, 8)
	alone.join(p.now)
	if alone.found(p.now); alone.owned != allLanes(8) {
		t.Errorf("alone it owns %b", alone.owned)
	}
}

// Two who cannot hear each other own everything both, and share again at once
// when they can.
func TestSplitView(t *testing.T) {
	p := newParish(t, "a", "b")
	p.pass(time.Second, nil)
	apart := func(from, to string) bool { return from != to }
	p.pass(time.Second, apart)
	for _, name := range p.up {
		if got := p.all[name].owned.len(); got != 64 {
			t.Errorf("%s owns %d lanes, want all: it hears of nobody", name, got)
		}
	}
	p.pass(BeatEvery+20*time.Millisecond, nil)
	p.dealt("together again")
	// One hears, the other is heard of: it has all, its own share is served by two.
	p.pass(time.Second, func(from, to string) bool { return from == "a" && to == "b" })
	if a, b := p.all["a"].owned.len(), p.all["b"].owned.len(); a == 64 || b != 64 {
		t.Errorf("the deaf one owns %d, the other %d", b, a)
	}
}

// A clock that is set while somebody is silent makes him no deader, nor less dead.
func TestSilenceOverAClockThatIsSet(t *testing.T) {
	const before = deadAfter - 100*time.Millisecond
	for name, jump := range map[string]time.Duration{"forward": time.Second, "back": -time.Second} {
		p := newParish(t, "a", "b")
		p.pass(time.Second, nil)
		a, silent := p.all["a"], p.now
		p.kill("b")
		for at := time.Duration(0); at < before; at += 20 * time.Millisecond {
			a.assign(silent + int64(at))
		}
		if a.assign(silent + int64(before+jump)); a.owned.len() == 64 {
			t.Errorf("%s: its lanes are taken over at once", name)
		}
		for at := before; at <= deadAfter+40*time.Millisecond; at += 20 * time.Millisecond {
			a.assign(silent + int64(at+jump))
		}
		if a.owned.len() != 64 {
			t.Errorf("%s: after %v of silence it owns %d lanes of 64", name, deadAfter, a.owned.len())
		}
	}
}

// Who was stopped for a while does not take everybody else for dead, nor does one
// whose clock was set.
func TestDeafness(t *testing.T) {
	for name, jump := range map[string]time.Duration{"stopped": time.Minute, "set forward": time.Hour, "set back": -time.Hour} {
		p := newParish(t, "a", "b")
		p.pass(time.Second, nil)
		a := p.all["a"]
		was := a.owned
		if a.assign(p.now + int64(jump)); a.owned != was || a.taken != 0 {
			t.Errorf("%s: it owns %d lanes, before %d", name, a.owned.len(), was.len())
		}
		if a.assign(p.now + int64(jump+deadAfter/4)); a.owned != was {
			t.Errorf("%s: a moment later it owns %d lanes, before %d", name, a.owned.len(), was.len())
		}
		for at := deadAfter / 4; at < 2*deadAfter; at += 20 * time.Millisecond {
			a.assign(p.now + int64(jump+at))
		}
		if a.owned.len() != 64 {
			t.Errorf("%s: the other one is dead by now, it owns %d lanes", name, a.owned.len())
		}
	}
}

// Who gave a lane away serves it for a while.
func TestHandOver(t *testing.T) {
	p := newParish(t, "a")
	p.pass(time.Second, nil)
	a := p.all["a"]
	p.enter("b")
	p.pass(deadAfter+BeatEvery, nil)
	if got := a.serving(p.now); got != allLanes(64) {
		t.Errorf("it serves %d lanes just after the hand-over, want all", got.len())
	}
	p.pass(handOver, nil)
	if got := a.serving(p.now); got != a.owned {
		t.Errorf("it serves %d lanes long after, want its %d", got.len(), a.owned.len())
	}
}

// An aggregator that starts again has its lanes again, and who is left of the
// one before costs nobody a lane.
func TestRestartedMember(t *testing.T) {
	p := newParish(t, "a", "b")
	p.pass(time.Second, nil)
	was := p.dealt("before")
	p.kill("b")
	p.enter("b").self.incarnation = 2
	p.pass(deadAfter+BeatEvery, nil)
	if got := p.dealt("after"); got != was {
		t.Errorf("owners are %v, want %v", got, was)
	}
}

func TestBeatsThatAreRefused(t *testing.T) {
	m := newMembers("eu", "a", 1, 8)
	for name, l := range map[string]deltasync.Live{
		"other region": {Region: "us", Name: "b", Lanes: 8},
		"other lanes":  {Region: "eu", Name: "b", Lanes: 4},
	} {
		if err := m.hear(1, &l); err == nil || len(m.others) > 0 {
			t.Errorf("%s: %v, %d others", name, err, len(m.others))
		}
	}
	for i := range 2 * maxMembers {
		_ = m.hear(1, &deltasync.Live{Region: "eu", Name: fmt.Sprint("b", i), Lanes: 8})
	}
	if len(m.others) != maxMembers {
		t.Errorf("%d others, want at most %d", len(m.others), maxMembers)
	}
	m = newMembers("eu", "a", 1, 8)
	l := deltasync.Live{Region: "eu", Name: "b", Lanes: 8, Leaving: true}
	_ = m.hear(1, &l)
	l.Leaving = false // it left before that
	if _ = m.hear(2, &l); !m.alone() || m.owned != allLanes(8) {
		t.Error("a late beat brings back who left")
	}
}

// All builds must draw alike, for ever.
func TestDraw(t *testing.T) {
	if got := []uint64{draw(0, "agg-1"), draw(7, "agg-1"), draw(7, "agg-2")}; fmt.Sprintf("%x", got) != "[ea71e919b7713ae3 dfa59712c0c23bb9 39d4e301f9007cba]" {
		t.Errorf("draw = %x", got)
	}
}
