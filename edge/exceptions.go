package edge

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// An operator may have a single key begin anew, or have another limit for some time.
//
// A key begins anew under another name, which its exception gives it: nobody has counted
// under that. So it is fresh by every algorithm, at every scope, without its penalty and
// without anybody's rights, wherever the exception is heard. To take counts back could do
// none of that: a penalty is a maximum, what an edge knows exactly of its own hits (a
// bucket's level, a log) is told by nobody else, and rights are their holders'. What is
// told of the old name is told of that: receipts, rights that run out, slots.
//
// Another limit is what a request's own would be (limit.Request.Override), but that what
// is over it may be punished: it is the key's.

// exceptions are those in force by the rules of now: immutable, swapped whole.
type exceptions struct {
	some [256]bool // some rule has one that has such a first byte in its Sub
	of   map[[2]uint64]map[deltasync.Hash]*excepted
}

// excepted is what is otherwise for one key.
type excepted struct {
	number uint64 // of its reset; 0: there is none
	since  int64  // when that came in force here
	limit  []exceptedLimit
	rates  atomic.Pointer[[]exceptedRate] // that were made so far
	all    []*limit.Exception
}

// exceptedLimit is another limit for some time.
type exceptedLimit struct {
	*limit.Exception
	until int64
}

// exceptedRate is a rate with another limit.
type exceptedRate struct {
	from, to *limit.Rate
	most     uint64
}

// mostExceptedRates bounds those that are kept for a key: its rule's, of some tenants.
const mostExceptedRates = 32

// exceptedKey is an exception, and when this node first had it.
type exceptedKey struct {
	limit.Exception
	since int64
}

const (
	// MaxExceptions bounds those that a node takes, and MaxNamespaceExceptions those of a
	// namespace.
	MaxExceptions          = 100_000
	MaxNamespaceExceptions = 10_000
)

// SetExceptions puts these exceptions for single keys in force, in the place of all that
// were, and says of which there are none by the rules of now: they are kept, and come in force
// with rules that they are good by. Beyond MaxNamespaceExceptions of a namespace, and
// MaxExceptions of all, the newest are left out, and told of. Counters of keys that have no
// exception are as ever.
func (n *Node) SetExceptions(now time.Time, list []limit.Exception) []limit.Problem {
	t := n.clock.Present(now)
	n.setting.Lock()
	defer n.setting.Unlock()
	type id struct{ namespace, id string }
	before := make(map[id]*exceptedKey, len(n.excepted))
	for i := range n.excepted {
		e := &n.excepted[i]
		before[id{e.Namespace, e.ID}] = e
	}
	first := n.excepted == nil
	next := make([]exceptedKey, 0, len(list))
	for i := range list {
		e := exceptedKey{list[i], t}
		e.Key = slices.Clone(e.Key)
		switch was := before[id{e.Namespace, e.ID}]; {
		case was != nil && was.Kind == e.Kind && was.Amount == e.Amount:
			e.since = was.since
		case first && !e.Since.IsZero(): // they were in force before this process began
			e.since = min(t, e.Since.UnixNano())
		}
		next = append(next, e)
	}
	slices.SortStableFunc(next, func(a, b exceptedKey) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.ID, b.ID))
	})
	var problems []limit.Problem
	had, all := map[string]int{}, 0
	n.excepted = slices.DeleteFunc(next, func(e exceptedKey) bool {
		if had[e.Namespace]++; had[e.Namespace] <= MaxNamespaceExceptions && all < MaxExceptions {
			all++
			return false
		}
		problems = append(problems, limit.Problem{Path: e.Namespace + "/" + e.ID, Code: "E339", Detail: "one exception too many", Hint: "remove some"})
		return true
	})
	if n.rules.Load() == nil { // SetRules puts them in force
		return problems
	}
	return append(problems, n.except(n.rules.Load())...)
}

// Exceptions is how many exceptions for single keys there are.
func (n *Node) Exceptions() int {
	n.setting.Lock()
	defer n.setting.Unlock()
	return len(n.excepted)
}

// except has the exceptions be in force by a set of rules. n.setting is held.
func (n *Node) except(set *limit.Set) (problems []limit.Problem) {
	x := &exceptions{of: map[[2]uint64]map[deltasync.Hash]*excepted{}}
	for i := range n.excepted {
		e := &n.excepted[i]
		rule, p := set.Excepts(&e.Exception)
		if p != nil {
			p.Path = e.Namespace + "/" + e.ID + ": " + p.Path
			problems = append(problems, *p)
			continue
		}
		hash := deltasync.Hash(e.Name)
		if hash == 0 {
			hash = deltasync.Keyer(rule.Sub).Hash(rule.AppendKeyOf(nil, e.Key))
		}
		of := x.of[rule.Sub]
		if of == nil {
			of = map[deltasync.Hash]*excepted{}
			x.of[rule.Sub], x.some[byte(rule.Sub[0])] = of, true
		}
		if of[hash] == nil {
			of[hash] = &excepted{}
		}
		of[hash].add(e)
	}
	if len(x.of) == 0 {
		x = nil
	}
	n.exceptions.Store(x)
	return problems
}

// add has an exception be one of the key's.
func (x *excepted) add(e *exceptedKey) {
	x.all = append(x.all, &e.Exception)
	if e.Kind != limit.KeyReset {
		x.limit = append(x.limit, exceptedLimit{&e.Exception, e.Until.UnixNano()})
	} else if x.number == 0 || e.since >= x.since { // they stand in the order in which they were made
		x.number, x.since = e.Amount, e.since
	}
}

// find is what a key is called by its hash as it is written. A candidate's key is the
// rule's, where it is made of the same.
func (x *exceptions) find(req *limit.Request, rule *limit.Rule, hash deltasync.Hash) named {
	of, as := rule, hash
	if live := rule.Live; live != nil {
		if !rule.SameKey(live) {
			return named{hash: hash}
		}
		of = live
	}
	if !x.some[byte(of.Sub[0])] {
		return named{hash: hash}
	}
	keys := x.of[of.Sub]
	if keys == nil {
		return named{hash: hash}
	}
	if of != rule {
		as, _ = written(req, of)
	}
	key := keys[as]
	if key != nil && key.number != 0 {
		hash = hash.Anew(key.number)
	}
	return named{hash, key}
}

// KeyName is what the request's key is called under a rule, as operators name it; ok is false where
// a part of it is absent.
func (n *Node) KeyName(rule *limit.Rule, req *limit.Request) (name uint64, ok bool) {
	hash, ok := written(req, rule)
	return uint64(hash), ok
}

// limits says that the key may have other limits than the rule's.
func (x *excepted) limits() bool { return x != nil && len(x.limit) > 0 }

// rateFor is a rate as it holds for the key. Strict ones are as their rule has them: see
// limit.Set.Excepts.
func (x *excepted) rateFor(rate *limit.Rate, now int64) *limit.Rate {
	if rate.PerRequest || escrows(rate) {
		return rate
	}
	base, more, other := rate.Limit, uint64(0), false
	for i := range x.limit {
		e := &x.limit[i]
		if now >= e.until || !e.On(rate) {
			continue
		}
		if other = true; e.Kind == limit.KeyOverride {
			base = e.Amount
		} else {
			more = crdt.SatAdd(more, e.Amount)
		}
	}
	if !other {
		return rate
	}
	return x.made(rate, crdt.SatAdd(base, more))
}

// made is a rate with another limit, made once.
func (x *excepted) made(rate *limit.Rate, most uint64) *limit.Rate {
	known := x.rates.Load()
	if known != nil {
		for _, r := range *known {
			if r.from == rate && r.most == most {
				return r.to
			}
		}
	}
	made := exceptedRate{from: rate, most: most, to: rate.WithLimit(most)}
	var next []exceptedRate
	if known != nil {
		next = *known
	}
	if len(next) >= mostExceptedRates { // those of tenants that ask no more may go
		next = nil
	}
	next = append(slices.Clip(slices.Clone(next)), made)
	x.rates.CompareAndSwap(known, &next) // else somebody has made one meanwhile
	return made.to
}

// holding are the exceptions that hold at an instant.
func (x *excepted) holding(now int64) (list []limit.Exception) {
	if x == nil {
		return nil
	}
	for _, e := range x.all {
		if e.Holds(time.Unix(0, now)) {
			list = append(list, *e)
		}
	}
	return list
}

// forgotten says that what was charged at an instant was so under a name that the key has no more.
func (x *excepted) forgotten(at int64) bool { return x != nil && x.number != 0 && at < x.since }
