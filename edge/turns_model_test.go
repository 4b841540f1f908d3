package edge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// paced is one queue of 40, for tenants of three tiers.
func paced(pace, maxWait time.Duration, scope string) limit.Document {
	rule := perUser(limit.RateSpec{Name: "q", Algorithm: "leaky_bucket", Capacity: 40, Outflow: limit.Flow{Units: 1, Per: pace}, Queue: true, MaxWait: maxWait, Scope: scope})
	rule.TierFrom = "plan"
	return limit.Document{Namespace: "test", Rules: []limit.RuleSpec{rule}, Tenants: map[string]limit.TenantSpec{"gold": {Multiply: 2}, "free": {Multiply: 0.25}}}
}

// lineWorld is a queue at one edge, in true time, and all who were told a turn in it.
type lineWorld struct {
	t       *testing.T
	n       *Node
	scope   string
	maxWait time.Duration
	pace    time.Duration
	kinds   int           // of what happens
	now     time.Duration // true
	back    time.Duration // so much the edge's clock was set back
	came    []*inLine
	steps   int  // so often
	tiers   bool // and limits of requests' own
	forgot  int  // so many had come when it was forgotten last
	forgets int  // so often
	loads   int
	slowest time.Duration // pace
}

type inLine struct {
	turn, outflow time.Duration
	takes         float64 // of the pace
	steps         int     // of the clock before it came
	forgets       int
	slower, left  bool
	charges       []limit.Charge
}

func newLineWorld(t *testing.T, scope string, maxWait time.Duration) *lineWorld {
	return &lineWorld{t: t, n: newNode(t, Config{View: mapView{}}, queueOf("")), now: time.Minute, scope: scope, maxWait: maxWait}
}

func (w *lineWorld) clock() time.Time { return start.Add(w.now - w.back) }

func (w *lineWorld) load(pace time.Duration) {
	set, problems := limit.Compile(paced(pace, w.maxWait, w.scope))
	if set == nil {
		w.t.Fatal(problems)
	}
	w.n.SetRules(set)
	w.logf("load %v", pace)
	w.pace, w.slowest = pace, max(w.slowest, pace)
	w.loads++
	for _, p := range w.came { // the last flows out by the faster pace, and any may be that
		p.outflow = min(p.outflow, time.Duration(p.takes*float64(pace)))
	}
}

func (w *lineWorld) forget() {
	forgetAll(w.n, w.clock())
	w.logf("forget")
	w.forgot = len(w.came)
	w.forgets++
}

func (w *lineWorld) setBack(by time.Duration) {
	w.back += by
	w.steps++
	w.logf("clock set back")
}

// join has one come, of a plan and maybe with a limit of its own.
func (w *lineWorld) join(plan string, own uint64, cost uint64) (*inLine, bool) {
	req := requestOf(w.n, "u")
	defer req.Release()
	req.Set("plan", plan)
	req.Cost, req.Receipt = cost, true
	factor := map[string]float64{"": 1, "gold": 2, "free": 0.25}[plan]
	if own > 0 {
		req.Override("api.q", own)
		factor = float64(own) / 40
	}
	d := w.n.Check(w.clock(), req)
	takes := float64(cost) / factor
	outflow := time.Duration(float64(w.pace) * takes)
	return &inLine{takes: takes, steps: w.steps, forgets: w.forgets, turn: w.now + d.Delay, outflow: outflow, slower: factor < 1, charges: slices.Clone(req.Charges)}, d.Allowed
}

// leave has one give back his place who waits.
func (w *lineWorld) leave(p *inLine) {
	w.n.Refund(w.clock(), p.charges, 0)
	w.logf("leave %v", p.turn)
	p.left = true
}

func (w *lineWorld) logf(f string, args ...any) {
	w.t.Logf("%v, clock set back by %v: "+f, append([]any{w.now, w.back}, args...)...)
}

func (w *lineWorld) waiting() (list []*inLine) {
	for i, p := range w.came {
		// Who was told by another clock, or by another pace and forgotten, might by chance look
		// like the last.
		if !p.left && p.turn > w.now && p.steps == w.steps && (i >= w.forgot || w.steps == 0 && !w.tiers) {
			list = append(list, p)
		}
	}
	return list
}

// told checks what one was told against all who came before him, and are still there.
func (w *lineWorld) told(p *inLine, what string) {
	w.t.Helper()
	most := w.maxWait
	if w.steps > 0 {
		most += 40 * w.pace // a window, as what lies ahead of the clock is known by slices
	}
	if w.maxWait > 0 && p.turn > w.now+most {
		w.t.Fatalf("%s: told to wait for %v", what, p.turn-w.now)
	}
	full := 40 * w.pace
	if w.loads > 1 || w.forgot > 0 || w.steps > 0 {
		full = 2*(50*w.slowest+time.Second) + 40*w.slowest // of what they told nobody knows more
	}
	if w.forgot > 0 && w.steps > 0 {
		full += 20 * time.Second // by which it was set back
	}
	if slack := time.Millisecond + p.outflow/1000; p.turn+p.outflow > w.now+full+slack {
		w.t.Fatalf("kinds %06b, %s, %s: at %v told to wait for %v, for %v", w.kinds, w.scope, what, w.now, p.turn-w.now, p.outflow)
	}
	for i, q := range w.came {
		// Of those who were forgotten it is not known by which pace each of them goes, nor who
		// waits for more than twice as long as ever, since the clock was set back.
		if q.left || q.slower && !p.slower || i < w.forgot && (w.tiers || w.steps > 0) {
			continue
		}
		soonest := q.turn + q.outflow - time.Microsecond - time.Duration(w.steps-q.steps)*time.Second
		soonest -= time.Duration(w.forgets-q.forgets) << endShift // what is held is rounded to so much
		if p.turn < soonest {
			w.t.Fatalf("kinds %06b, %s, %s: at %v number %d is told to come at %v, and number %d before it at %v, for %v", w.kinds, w.scope, what, w.now, len(w.came), p.turn, i, q.turn, q.outflow)
		}
	}
	w.logf("%s: number %d is told %v, for %v", what, len(w.came), p.turn, p.outflow)
	w.came = append(w.came, p)
}

// Whoever comes, by whatever pace, leaves, whatever rules become, and is forgotten, and
// wherever the clock goes back to: in each line of a queue nobody is told a turn before what
// was told to those before him, who are still there, has flowed out; nobody waits for longer
// than max_wait, or a window more where the clock was set back; and when all is over the queue is as a new one.
func TestNobodyIsOvertakenInHisLine(t *testing.T) {
	alone.Mark(t)
	paces := []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, 840 * time.Millisecond, time.Second}
	for seed := range uint64(2000) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 77))
			w := newLineWorld(t, []string{"edge", "global"}[rnd.IntN(2)], []time.Duration{0, 15 * time.Second}[rnd.IntN(2)])
			w.load(paces[rnd.IntN(len(paces))])
			kinds := rnd.IntN(64) // which of what follows happen at all
			w.kinds, w.tiers = kinds, kinds>>4 > 0
			does := func(bit int) bool { return kinds>>bit&1 == 1 && rnd.IntN(6) == 0 }
			for range 250 {
				switch {
				case does(0):
					w.load(paces[rnd.IntN(len(paces))])
				case does(1):
					w.forget()
				case does(2):
					settleFrames(w.n, w.clock())
					w.logf("settle")
				case does(3) && w.back < time.Hour/2:
					w.setBack([]time.Duration{1203 * time.Millisecond, 3013 * time.Millisecond, 20019 * time.Millisecond}[rnd.IntN(3)])
				}
				switch rnd.IntN(8) {
				case 0:
					w.now += time.Duration(rnd.Int64N(int64(4 * w.pace)))
				case 1:
					w.now += time.Duration(rnd.Int64N(int64(5 * time.Second)))
				case 2:
					if list := w.waiting(); len(list) > 0 {
						w.leave(list[rnd.IntN(len(list))])
					}
				case 3:
					if list := w.waiting(); len(list) > 0 {
						w.leave(list[len(list)-1])
					}
				default:
					plan, own := "", uint64(0)
					if kinds>>4&1 == 1 {
						plan = []string{"", "gold", "free"}[rnd.IntN(3)]
					}
					if kinds>>5&1 == 1 && rnd.IntN(4) == 0 {
						own = []uint64{5, 400}[rnd.IntN(2)]
					}
					if p, ok := w.join(plan, own, 1+rnd.Uint64N(2)); ok {
						w.told(p, fmt.Sprintf("%q, own limit %d", plan, own))
					}
				}
				w.n.Tick(w.clock())
			}
			w.now += w.back + time.Hour // the clock shows again what it did before it was set back, and that is over
			if p, ok := w.join("", 0, 1); !ok || p.turn != w.now {
				t.Fatalf("after all are gone: %v, told to wait for %v", ok, p.turn-w.now)
			}
		})
	}
}

// Of one pace, turns are what a model says that knows the level, which drains, and when the
// last one has flowed out: who leaves gives back his place where he is that one, and nobody
// came since but who left.
func TestQueueAgainstAModel(t *testing.T) {
	alone.Mark(t)
	const pace = 500 * time.Millisecond
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 78))
			w := newLineWorld(t, "edge", []time.Duration{0, 15 * time.Second}[rnd.IntN(2)])
			w.load(pace)
			var level, at, next time.Duration // level is in time to flow out, as of at
			admitted, denied, back := 0, 0, 0
			for range 600 {
				switch rnd.IntN(10) {
				case 0:
					w.now += time.Duration(rnd.Int64N(int64(4 * pace)))
				case 1:
					w.now += time.Duration(rnd.Int64N(int64(12 * pace)))
				case 2, 3:
					list := w.waiting()
					if len(list) == 0 {
						continue
					}
					p := list[rnd.IntN(len(list))]
					if rnd.IntN(2) == 0 {
						p = list[len(list)-1]
					}
					w.leave(p)
					if next == p.turn+p.outflow {
						level, at, next = max(0, level-(w.now-at))-p.outflow, w.now, p.turn
						back++
					}
				default:
					cost := 1 + rnd.Uint64N(3)
					p, ok := w.join("", 0, cost)
					full := max(0, level-(w.now-at))
					turn := max(w.now, next, w.now+full)
					last := turn + p.outflow - pace // its last unit
					if fits := full+p.outflow <= 40*pace && (w.maxWait == 0 || last <= w.now+w.maxWait); ok != fits {
						t.Fatalf("at %v: admitted %v, want %v: %v are in it, and who comes next may go on at %v", w.now, ok, fits, full/pace, turn)
					}
					if !ok {
						denied++
						continue
					}
					if p.turn != turn {
						t.Fatalf("at %v: told %v, want %v", w.now, p.turn, turn)
					}
					level, at, next = full+p.outflow, w.now, turn+p.outflow
					w.came = append(w.came, p)
					admitted++
				}
			}
			if admitted < 50 || denied < 5 || back < 10 {
				t.Errorf("%d were admitted, %d denied, and %d gave their places back: this test sees too little", admitted, denied, back)
			}
		})
	}
}
