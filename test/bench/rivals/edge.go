package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// timing is where a worker of the edge takes the time from.
type timing int

const (
	givenTime     timing = iota // an argument, as the harness says
	systemTime                  // time.Now for every decision
	refreshedTime               // a clock in memory, set every 0.5 ms
	inBatches                   // an argument, the same for 64 decisions at once
)

// ruleset is what the edge enforces, and what a request says beside its user.
type ruleset struct {
	rules func(quota) []limit.RuleSpec
	path  string
}

var (
	oneRate = ruleset{rules: func(q quota) []limit.RuleSpec {
		return []limit.RuleSpec{perUser(limit.RateSpec{Limit: q.limit, Per: q.per})}
	}}
	threeRates = ruleset{rules: func(q quota) []limit.RuleSpec {
		return []limit.RuleSpec{perUser(
			limit.RateSpec{Limit: q.limit, Per: q.per / 6},
			limit.RateSpec{Limit: q.limit, Per: q.per},
			limit.RateSpec{Limit: q.limit, Per: 60 * q.per},
		)}
	}}
	// tenRules are tried in order, and the last one is the one that matches.
	tenRules = ruleset{path: "/service-9/items", rules: func(q quota) []limit.RuleSpec {
		rules := make([]limit.RuleSpec, 10)
		for i := range rules {
			rules[i] = perUser(limit.RateSpec{Limit: q.limit, Per: q.per})
			rules[i].Name = fmt.Sprintf("service-%d", i)
			rules[i].Match.Path = []string{fmt.Sprintf("/service-%d/**", i)}
		}
		return rules
	}}
)

func perUser(rates ...limit.RateSpec) limit.RuleSpec {
	return limit.RuleSpec{Name: "per-user", Key: []string{"user"}, Rates: rates}
}

// newNode makes an edge that talks to nobody, with room for twice maxKeys.
func newNode(maxKeys int, rules []limit.RuleSpec) (*edge.Node, error) {
	n, err := edge.New(edge.Config{
		Region: "eu", Pop: "fra", Name: "bench", Secret: []byte("a secret for benchmarks"),
		Lanes: 1, MaxKeys: max(1<<16, 2*maxKeys),
	})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	set, problems := limit.Compile(limit.Document{Namespace: "bench", Rules: rules})
	var errs []error
	for _, p := range problems {
		if len(p) > 0 {
			errs = append(errs, p)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("edge: rules: %w", errors.Join(errs...))
	}
	return n, n.SetRules(set)
}

// ask decides one request, built as a caller builds it now and then.
func ask(n *edge.Node, ns *limit.Namespace, now time.Time, path, user string) limit.Decision {
	a := newAsker(n, ns, path)
	defer a.req.Release()
	return a.ask(now, user)
}

// asker decides requests as a goroutine does that has many to decide: it keeps
// one request and knows the place of its attribute.
type asker struct {
	node *edge.Node
	req  *limit.Request
	user limit.Slot
	path string
}

func newAsker(n *edge.Node, ns *limit.Namespace, path string) *asker {
	user, ok := ns.Slot("user")
	if !ok {
		panic("no rule reads the user")
	}
	return &asker{node: n, req: ns.NewRequest(), user: user, path: path}
}

func (a *asker) ask(now time.Time, user string) limit.Decision {
	a.build(user)
	return a.node.Check(now, a.req)
}

// allows is ask for those who want no more than the others' libraries tell.
func (a *asker) allows(now time.Time, user string) bool {
	a.build(user)
	return a.node.Check(now, a.req).Allowed
}

func (a *asker) build(user string) {
	a.req.Reset()
	if a.path != "" {
		a.req.SetHTTP("GET", a.path, "", "", nil)
	}
	a.req.SetSlot(a.user, user)
}

// buildEdge makes a row of the edge. Every key was charged a window ago, and
// then the population's aged requests came, spread over the window up to
// origin: popular keys have counts in all of its slices.
func buildEdge(rules ruleset, from timing) func(population, time.Time) (*subject, error) {
	return func(p population, origin time.Time) (*subject, error) {
		specs := rules.rules(p.quota)
		n, err := newNode(len(p.keys)*len(specs[0].Rates), specs)
		if err != nil {
			return nil, err
		}
		if from != givenTime {
			origin = time.Now()
		}
		ns := n.Rules().Only()
		past := p.quota.per
		if len(p.aged) == 0 {
			past = 0
		}
		if err := introduce(n, rules.path, origin.Add(-past)); err != nil {
			return nil, err
		}
		for _, key := range p.keys {
			ask(n, ns, origin.Add(-past), rules.path, key)
		}
		for i, key := range p.aged {
			ask(n, ns, origin.Add(-past+past*time.Duration(i)/time.Duration(len(p.aged))), rules.path, key)
		}
		return edgeSubject(n, rules.path, from), nil
	}
}

// batcher decides requests as a goroutine does that gathers them.
type batcher struct {
	node *edge.Node
	user limit.Slot
	reqs [64]*limit.Request
	out  []limit.Decision
}

func newBatcher(n *edge.Node, ns *limit.Namespace) *batcher {
	b := &batcher{node: n, user: newAsker(n, ns, "").user, out: make([]limit.Decision, 64)}
	for i := range b.reqs {
		b.reqs[i] = ns.NewRequest()
		b.out[i].Allowed = true
	}
	return b
}

// at is a decide that answers with what became of the request a batch before.
func (b *batcher) at(now time.Time, step time.Duration) decide {
	h := &hand{now: now}
	return func(key string) bool {
		if h.at == len(b.reqs) {
			b.out = b.node.CheckBatch(h.now, b.reqs[:], b.out[:0])
			h.at = 0
		}
		h.now = h.now.Add(step)
		req := b.reqs[h.at]
		req.Reset()
		req.SetSlot(b.user, key)
		h.at++
		return b.out[h.at-1].Allowed
	}
}

func edgeSubject(n *edge.Node, path string, from timing) *subject {
	ns := n.Rules().Only()
	// Each goroutine has an asker of its own.
	worker := func(clock func() time.Time) func(time.Time, time.Duration) decide {
		return func(time.Time, time.Duration) decide {
			a := newAsker(n, ns, path)
			return func(key string) bool { return a.allows(clock(), key) }
		}
	}
	switch from {
	case systemTime:
		return &subject{worker: worker(time.Now)}
	case refreshedTime:
		var clock atomic.Int64
		return &subject{
			worker: worker(func() time.Time { return time.Unix(0, clock.Load()) }),
			during: func() (stop func()) { return refresh(&clock) },
		}
	case inBatches:
		return &subject{worker: func(now time.Time, step time.Duration) decide { return newBatcher(n, ns).at(now, step) }}
	default:
		return &subject{worker: func(now time.Time, step time.Duration) decide {
			a, h := newAsker(n, ns, path), &hand{now: now}
			return func(key string) bool {
				allowed := a.allows(h.now, key)
				h.now = h.now.Add(step)
				return allowed
			}
		}}
	}
}

// refresh sets the clock now and every half millisecond from now on.
func refresh(clock *atomic.Int64) (stop func()) {
	clock.Store(time.Now().UnixNano())
	ticker := time.NewTicker(500 * time.Microsecond)
	ended, done := make(chan struct{}), make(chan struct{})
	// stop ends it and waits for it.
	go func() {
		defer close(done)
		for {
			select {
			case now := <-ticker.C:
				clock.Store(now.UnixNano())
			case <-ended:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(ended)
		<-done
	}
}
