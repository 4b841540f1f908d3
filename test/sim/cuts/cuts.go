// Package cuts runs clusters in which everybody wants one adaptive limit through
// random cuts: of regions, one way or both, from all or from one, for good or off and on, of
// edges, of aggregators from each other; with aggregators that start anew, stores that are away,
// edges that die, and demand that moves meanwhile. It holds what edges say of the limit
// to A20 of the targets: nothing that happens is above error_bound_surge, and
// next to nothing above error_bound. When all is healed the limit is used again, by who
// asks for it.
package cuts

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/sim/world"
)

// The limit that is asked for, and how long it is looked at before its edges are asked how
// far it may be exceeded.
const (
	most   = 1000
	per    = 10 * time.Second
	window = 50 * time.Millisecond
)

var start = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// Outcome is what became of a life.
type Outcome struct {
	Seed      uint64
	Plan      string        // in words
	Over      int           // the most above the limit
	At        time.Duration // when that was, after the start
	Windows   int           // that were looked at
	Uncovered int           // of them, in which the limit was exceeded by more than error_bound
	Surged    int           // and by more than error_bound_surge
	Err       error
}

// life is one of them, as it goes.
type life struct {
	rnd     *rand.Rand
	w       *world.World
	regions []string
	servers int
	tale    io.Writer
	out     Outcome

	asks     map[string]int       // requests a second at each edge of a region
	admitted []admission          // in the window of the limit that ends now
	seen     int64                // the window of 50 ms that goes on
	over     int                  // in that, the most
	told     [2]int               // the largest bounds that requests were told in it
	undo     []func()             // what ails edges, and aggregators among each other
	alone    map[string]time.Time // until when edges are cut off from their regions, or not answered yet since
}

type admission struct {
	at     time.Time
	region string
}

// Run runs the life of a seed, and tells it in words where there is a writer.
func Run(seed uint64, tale io.Writer) Outcome {
	l := newLife(seed, tale)
	if err := l.begin(seed); err != nil {
		l.out.Err = err
		return l.out
	}
	l.move()
	l.pass(12 * time.Second)
	for range 8 + l.rnd.IntN(8) {
		l.happen()
		l.pass(300*time.Millisecond + time.Duration(l.rnd.Int64N(int64(8*time.Second))))
	}
	l.heal()
	return l.out
}

func newLife(seed uint64, tale io.Writer) *life {
	return &life{rnd: rand.New(rand.NewPCG(seed, 27)), tale: tale, asks: map[string]int{}, alone: map[string]time.Time{}, out: Outcome{Seed: seed}}
}

// begin builds the cluster.
func (l *life) begin(seed uint64) error {
	regions := 2 + l.rnd.IntN(4)
	l.servers = 1 + l.rnd.IntN(2)
	cfg := world.Config{
		Start: start, Seed: seed + 1, Lanes: 8, Aggregators: l.servers, Expects: true,
		Rules: []limit.Document{{Namespace: "t", Rules: []limit.RuleSpec{{
			Name: "api", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "r", Limit: most, Per: per, Consistency: "adaptive"}},
		}}}},
	}
	for i := range regions {
		name := fmt.Sprint("r", i)
		l.regions = append(l.regions, name)
		cfg.Regions = append(cfg.Regions, world.Region{Name: name, Edges: []string{name + "-0", name + "-1"}})
	}
	l.out.Plan = fmt.Sprintf("seed %d: %d regions of two edges and %d aggregators", seed, regions, l.servers)
	w, err := world.New(cfg)
	if l.w = w; err != nil {
		return err
	}
	l.note("%s", l.out.Plan)
	w.Advance(start.Add(6 * time.Second))
	return nil
}

func (l *life) note(format string, args ...any) {
	if l.tale != nil {
		fmt.Fprintf(l.tale, "%6.2f "+format+"\n", append([]any{l.w.Now().Sub(start).Seconds()}, args...)...)
	}
}

// move has other regions ask, one of them much.
func (l *life) move() {
	for _, r := range l.regions {
		l.asks[r] = []int{0, 5, 20, 60, 150}[l.rnd.IntN(5)]
	}
	l.asks[l.any()] = 150
	l.note("requests a second of each edge: %v", l.asks)
}

func (l *life) any() string { return l.regions[l.rnd.IntN(len(l.regions))] }

// pass has time pass, in which edges are asked.
func (l *life) pass(long time.Duration) {
	var who []string
	for _, r := range l.regions {
		for e := range 2 {
			who = append(who, slices.Repeat([]string{fmt.Sprintf("%s-%d", r, e)}, l.asks[r])...)
		}
	}
	for end := l.w.Now().Add(long); l.w.Now().Before(end); {
		l.w.Advance(l.w.Now().Add(time.Duration(l.rnd.ExpFloat64() * float64(time.Second) / float64(len(who)))))
		l.ask(who[l.rnd.IntN(len(who))])
	}
	l.note("%d admitted in %v, %d above the limit at the most so far", len(l.admitted), per, l.out.Over)
}

// ask asks an edge once, and looks at what it tells.
func (l *life) ask(edge string) {
	now := l.w.Now()
	for len(l.admitted) > 0 && now.Sub(l.admitted[0].at) >= per {
		l.admitted = l.admitted[1:]
	}
	if this := int64(now.Sub(start) / window); this != l.seen {
		l.close()
		l.seen, l.over, l.told = this, 0, [2]int{}
	}
	allowed, bound := l.check(edge, false)
	if allowed {
		l.admitted = append(l.admitted, admission{now, edge[:len(edge)-2]})
	}
	over := len(l.admitted) - most
	if over > l.out.Over {
		l.out.Over, l.out.At = over, now.Sub(start)
	}
	if bound.Known {
		l.over = max(l.over, over)
		l.told = [2]int{max(l.told[0], int(bound.Now)), max(l.told[1], int(bound.Surge))}
	}
}

// check asks an edge, and what it takes to be possible.
func (l *life) check(edge string, peek bool) (allowed bool, bound limit.Bound) {
	n := l.w.Node(edge)
	req := n.Rules().Only().NewRequest()
	defer req.Release()
	req.Set("user", "u")
	req.Bounds, req.Peek = true, peek
	l.w.Touch()
	allowed = n.Check(l.w.NowAt(edge), req).Allowed
	return allowed, req.Bound
}

// close compares what was admitted in a window with what edges say: the largest bound of
// all holds, and what those say adds to it who are cut off alone, as they do not know of
// each other. Where requests were told enough nobody else is asked.
func (l *life) close() {
	if l.out.Windows++; l.over <= l.told[0] && l.over <= l.told[1] {
		return
	}
	told, alone := l.told, [2]int{}
	for _, e := range l.w.Edges() {
		_, b := l.check(e, true)
		switch {
		case !b.Known:
		case l.w.Now().Before(l.alone[e]):
			alone = [2]int{alone[0] + int(b.Now), alone[1] + int(b.Surge)}
		default:
			told = [2]int{max(told[0], int(b.Now)), max(told[1], int(b.Surge))}
		}
	}
	told = [2]int{told[0] + alone[0], told[1] + alone[1]}
	if l.over > told[0] {
		l.out.Uncovered++
	}
	if l.over <= told[1] {
		return
	}
	if l.out.Surged++; l.out.Err == nil {
		l.out.Err = fmt.Errorf("after %v the limit of %d is exceeded by %d, and error_bound_surge is %d, error_bound %d", l.w.Now().Sub(start), most, l.over, told[1], told[0])
		l.note("%v", l.out.Err)
	}
}
