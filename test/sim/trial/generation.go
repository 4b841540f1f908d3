package trial

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Rules of another generation: what a count means has changed, so that what was
// counted before counts no more, and what is counted now is no count of before. Edges
// load them one by one, and some go back: for a while both are in use. Each generation
// has counters of its own, and each is held to the invariants by itself; to agree on a
// counter is for those edges that use it.

// version is what an edge has loaded; the zero one is what it starts with.
type version struct {
	more uint64 // by how much the factor of the limits is above 1
	anew bool   // of the other generation
}

// otherWindow is as long as a window becomes, where that is what changes.
const otherWindow = 90 * time.Second

var algorithms = []string{"sub_windows", "sub_windows", "sliding_window", "fixed_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency"}

// rateOf is a rate of some limit, in a window or of a bucket.
func rateOf(name, algorithm string, most uint64) limit.RateSpec {
	if algorithm == "sliding_log" {
		most = min(most, 1000) // it remembers each hit
	}
	rate := limit.RateSpec{Name: name, Algorithm: algorithm, Limit: most, Per: window}
	if algorithm == "concurrency" {
		rate.Per, rate.Lease = 0, window // slots that are given back, or held to the end
	}
	if strings.HasSuffix(algorithm, "bucket") {
		rate.Limit, rate.Per, rate.Capacity = 0, 0, most
		flow := limit.Flow{Units: 1 + most/60, Per: time.Second}
		if algorithm == "token_bucket" {
			rate.Refill = flow
		} else {
			rate.Outflow = flow
		}
	}
	return rate
}

// generation draws the rule of the other one: its rates have another algorithm, or a
// window of another length, or the rule says that it counts anew. One of two rates may
// stay what it is; not so where a penalty goes with each generation.
func (p *plan) generation(rnd *rand.Rand) {
	p.anew = slices.Clone(p.rates)
	if rnd.IntN(4) == 0 {
		p.number = 1
		return
	}
	keeps := len(p.anew) > 1 && p.penalty == 0 && rnd.IntN(2) == 0
	for i := range p.anew {
		was := &p.anew[i]
		other := algorithms[rnd.IntN(len(algorithms))]
		switch {
		case keeps && i > 0:
		case rnd.IntN(2) == 0 && was.Per != 0:
			was.Per = otherWindow
		case other == was.Algorithm && was.Per != 0:
			was.Per = otherWindow
		case other == was.Algorithm:
			*was = rateOf(was.Name, "sub_windows", max(was.Limit, was.Capacity))
		default:
			*was = rateOf(was.Name, other, max(was.Limit, was.Capacity))
		}
	}
}

// ratesOf are the rates that a version has, before their limits are any larger.
func (p *plan) ratesOf(v version) []limit.RateSpec {
	if v.anew {
		return p.anew
	}
	return p.rates
}

// longest is the longest window that anything counts in.
func (p *plan) longest() time.Duration {
	if p.has[Generation] && slices.ContainsFunc(p.anew, func(r limit.RateSpec) bool { return r.Per == otherWindow }) {
		return otherWindow
	}
	return window
}

// ratesInWords says what rates are.
func ratesInWords(rates []limit.RateSpec) string {
	var words []string
	for _, r := range rates {
		of := fmt.Sprintf("%s of %d", r.Algorithm, max(r.Limit, r.Capacity))
		if r.Per == otherWindow {
			of += fmt.Sprint(" in ", otherWindow)
		}
		words = append(words, of)
	}
	return strings.Join(words, ", ")
}

// person is who asks, and the counters of each generation.
type person struct {
	name      string
	now, anew []*counter // some may be in both
}

// at are the counters of a user that an edge uses.
func (t *trial) at(edge string, user int) []*counter {
	if t.loaded[edge].anew {
		return t.people[user].anew
	}
	return t.people[user].now
}

// uses says that an edge has loaded the rule of a counter.
func (t *trial) uses(edge string, c *counter) bool {
	if t.loaded[edge].anew {
		return c.anew
	}
	return c.now
}

// load has an edge take another version of the rules.
func (t *trial) load(edge string, change func(*version)) error {
	v := t.loaded[edge]
	change(&v)
	t.largest = max(t.largest, v.more)
	t.loaded[edge] = v
	return t.w.SetRules(edge, t.rules(v))
}

// culprit is a user as penalties of a generation know it.
func culprit(user string, anew bool) string {
	if anew {
		return user + " anew"
	}
	return user
}
