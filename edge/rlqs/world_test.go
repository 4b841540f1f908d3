package rlqs

import (
	"testing"
	"time"

	quotav3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/limit/when"
	"github.com/spillgate/spillgate/edge/rlqs/dataplane"
)

// start is when all worlds begin: at the start of a minute.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// step is what a world's clock goes on by.
const step = 10 * time.Millisecond

var (
	denyAll = &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: typev3.RateLimitStrategy_DENY_ALL}}
	user    = map[string]string{"user": "u1"}
)

// world is a book over a real node, and data planes with lines to it, on a virtual clock.
type world struct {
	testing.TB
	node *edge.Node
	book *book
	reg  *prometheus.Registry
	now  time.Time
	pops []*pop
}

// pop is a data plane, what it is asked, and its line.
type pop struct {
	*dataplane.Plane
	w     *world
	host  string
	rps   float64
	asked float64 // of the request that comes next
	delay time.Duration

	st               *stream
	up               []sent[*quotav3.RateLimitQuotaUsageReports]
	down             []sent[*quotav3.RateLimitQuotaResponse]
	frozen           bool // nothing gets through, and nobody notices
	stuck            bool // it does not read, but writes
	onReport         func(*quotav3.RateLimitQuotaUsageReports)
	ended            error
	admitted, denied int
}

type sent[T any] struct {
	at time.Time // it arrives
	it T
}

// perUser is a rule of so many in a window, for each user.
func perUser(rate limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: "per-user", Match: limit.MatchSpec{Has: []string{"user"}}, Key: []string{"user"}, Rates: []limit.RateSpec{rate}}
}

func fixed(most uint64, per time.Duration) limit.RateSpec {
	return limit.RateSpec{Limit: most, Per: per, Algorithm: "fixed_window"}
}

func newWorld(tb testing.TB, cfg Config, rules ...limit.RuleSpec) *world {
	tb.Helper()
	node, err := edge.LocalWith(limit.Options{Conditions: when.Compile}, rules...)
	if err != nil {
		tb.Fatal(err)
	}
	return worldOver(tb, cfg, node)
}

func worldOver(tb testing.TB, cfg Config, node *edge.Node) *world {
	w := &world{TB: tb, node: node, now: start, reg: prometheus.NewRegistry()}
	cfg.Registerer = w.reg
	w.book = newBook(node, cfg.withDefaults())
	return w
}

// join adds a data plane that is asked so often.
func (w *world) join(host string, rps float64, settings dataplane.Settings) *pop {
	settings.Domain = edge.LocalNamespace
	if settings.Interval == 0 {
		settings.Interval = time.Second
	}
	p := &pop{Plane: dataplane.New(settings), w: w, host: host, rps: rps, delay: 20 * time.Millisecond}
	w.pops = append(w.pops, p)
	return p
}

// connect opens a stream; what was under way on another one is lost.
func (p *pop) connect() {
	st, err := p.w.book.open(p.host)
	if err != nil {
		p.w.Fatal(err)
	}
	p.st, p.up, p.down = st, nil, nil
	p.Reconnected()
}

// reset ends the stream at both ends.
func (p *pop) reset() {
	if p.st != nil {
		p.w.book.close(p.w.now, p.st)
	}
	p.st, p.up, p.down = nil, nil, nil
}

// run has the world go on for so long, calling each, where there is one, after each step.
func (w *world) run(length time.Duration, each func()) {
	w.Helper()
	for end := w.now.Add(length); w.now.Before(end); {
		w.step()
		if each != nil {
			each()
		}
	}
}

func (w *world) step() {
	w.now = w.now.Add(step)
	for _, p := range w.pops {
		p.ask()
		if p.frozen {
			continue
		}
		p.talk()
	}
	if w.now.Sub(start)%tickEvery == 0 {
		w.book.tick(w.now)
	}
}

func (p *pop) ask() {
	for p.asked += p.rps * step.Seconds(); p.asked >= 1; p.asked-- {
		if p.Allow(p.w.now, user) {
			p.admitted++
		} else {
			p.denied++
		}
	}
}

func (p *pop) talk() {
	now := p.w.now
	if p.st == nil {
		p.connect()
	}
	for out := p.Reports(now); out != nil; out = p.Reports(now) {
		if p.onReport != nil {
			p.onReport(out)
		}
		p.up = append(p.up, sent[*quotav3.RateLimitQuotaUsageReports]{now.Add(p.delay), out})
	}
	for len(p.up) > 0 && !p.up[0].at.After(now) {
		in := p.up[0].it
		p.up = p.up[1:]
		if err := p.w.book.report(now, p.st, in); err != nil {
			p.ended = err
			p.reset()
			return
		}
	}
	if p.stuck {
		return
	}
	for actions := p.w.book.take(now, p.st); len(actions) > 0; {
		answer := response(actions)
		p.down = append(p.down, sent[*quotav3.RateLimitQuotaResponse]{now.Add(p.delay), answer})
		actions = actions[len(answer.BucketAction):]
	}
	for len(p.down) > 0 && !p.down[0].at.After(now) {
		p.Apply(now, p.down[0].it)
		p.down = p.down[1:]
	}
}

// admitted is that of all data planes so far.
func (w *world) admitted() (sum int) {
	for _, p := range w.pops {
		sum += p.admitted
	}
	return sum
}

// held is what all data planes may still admit by what they were assigned, or will be.
func (w *world) held() (sum uint64) {
	for _, p := range w.pops {
		sum += p.Held(w.now, user)
		if p.st != nil {
			for _, a := range p.st.outbox {
				sum += a.tokens
			}
		}
		for _, m := range p.down {
			for _, a := range m.it.BucketAction {
				sum += uint64(a.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket().GetMaxTokens())
			}
		}
	}
	return sum
}

// outstanding is what was granted and not yet reported as spent: in any window no more may be
// admitted than the limit and what was outstanding when it began. What data planes hold on
// to of streams that are forgotten comes to it.
func (w *world) outstanding() uint64 {
	sum := uint64(0)
	for _, orphans := range w.book.orphans {
		for _, o := range orphans {
			sum += o.was.grants.left()
		}
	}
	for _, bk := range w.book.buckets {
		for _, sub := range bk.subs {
			sum += sub.grants.left()
		}
	}
	for _, p := range w.pops {
		if p.st == nil || p.frozen {
			sum += p.Held(w.now, user)
		}
	}
	return sum
}

// used is what the node has counted of the user's window.
func (w *world) used() uint64 {
	req := w.node.Rules().Namespace(edge.LocalNamespace).NewRequest()
	defer req.Release()
	req.Set("user", "u1")
	req.Peek = true
	d := w.node.Check(w.now, req)
	return d.Limit - d.Remaining
}
