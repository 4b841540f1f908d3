package trial

import (
	"time"

	"github.com/spillgate/spillgate/test/sim/world"
)

// takeover is how long a lane may be nobody's after its owner died, where somebody
// else lives: he finds out within deadAfter of the last beat. Where the one who was to
// have it dies before he has found out, whoever is next has to miss him too; and so where he
// leaves, and what he says of that is lost. Seeds 1092, 20003735 and 28065.
const takeover = time.Second

// late is what beats may be late by, where links are bad: one in a million is later.
const late = 500 * time.Millisecond

// lanesServed is since when lanes are nobody's, and aggregators live.
type lanesServed struct {
	nobodys map[ofRegion]time.Time
	lives   map[string]lived
	died    map[string]time.Time // by region: when somebody did whom the others count on
	idle    map[ofServer]uint64  // how often one was seen not to serve a lane: then it forgets what is stored
}

type ofServer struct {
	name string
	lane int
}

type ofRegion struct {
	region string
	lane   int
}

type lived struct {
	life  int
	since time.Time
}

func newLanesServed() lanesServed {
	return lanesServed{nobodys: map[ofRegion]time.Time{}, lives: map[string]lived{}, died: map[string]time.Time{}, idle: map[ofServer]uint64{}}
}

// kill ends an aggregator's life. Who only listens as yet has told nobody that he lives.
func (t *trial) kill(v *world.Server) {
	if a := v.Aggregator(); a != nil && !t.w.Leaves(v) && !a.Stats(t.w.NowAtServer(v)).Listening {
		t.lanesServed.died[v.Region] = t.w.Now()
	}
	t.w.Stop(v)
}

// leave has an aggregator take its leave. Those who do not hear that count on it until they
// miss it.
func (t *trial) leave(v *world.Server) {
	if t.has[Loss] {
		t.lanesServed.died[v.Region] = t.w.Now()
	}
	t.w.Leave(v)
}

// start starts an aggregator with nothing, be it still alive.
func (t *trial) start(v *world.Server) error {
	t.kill(v)
	return t.w.Start(v)
}

// watchLanes demands that each lane is served again within a second, by whoever
// has lived for as long.
func (t *trial) watchLanes() {
	now := t.w.Now()
	patience := takeover
	if t.has[Jitter] {
		patience += late
	}
	if t.has[ServerClock] { // they judge it by clocks that are set by so much at the end of each episode
		patience += 100 * time.Millisecond
	}
	for _, r := range t.regionNames {
		since, any := now, false // when the one began who lives longest
		var serving uint64
		for _, v := range t.w.Servers(r) {
			if v.Aggregator() == nil {
				continue
			}
			for lane := range t.lanes {
				if v.Aggregator().Serves(lane) {
					serving |= 1 << lane
				} else {
					t.lanesServed.idle[ofServer{v.Name, lane}]++
				}
			}
			if t.w.Leaves(v) {
				continue
			}
			l, known := t.lanesServed.lives[v.Name]
			if !known || l.life != v.Lives() {
				l = lived{v.Lives(), now}
				t.lanesServed.lives[v.Name] = l
			}
			if any = true; l.since.Before(since) {
				since = l.since
			}
		}
		for lane := range t.lanes {
			at := ofRegion{r, lane}
			if serving&(1<<lane) != 0 || !any {
				delete(t.lanesServed.nobodys, at)
				continue
			}
			from, known := t.lanesServed.nobodys[at]
			if !known {
				from = now
				t.lanesServed.nobodys[at] = now
			}
			for _, later := range []time.Time{since, t.lanesServed.died[r]} {
				if from.Before(later) {
					from = later
				}
			}
			if now.Sub(from) > patience {
				t.failf("take-over", "for %v nobody serves lane %d of %s, though an aggregator lives", now.Sub(from), lane, r)
			}
		}
	}
}
