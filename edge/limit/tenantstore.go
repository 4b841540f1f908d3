package limit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// TenantEntry is what one tenant has by a store of its own, beside the document: the name that rules
// with tier_from find in a request is that of the tenant then, and not of its tier.
type TenantEntry struct {
	Namespace string
	Tenant    string
	Tier      string    // one of the document's tenants; or
	Multiply  float64   // its own, which the document need not have
	Until     time.Time // when that ends; zero: never
	Deleted   bool      // it has nothing by the store
}

const (
	maxTenantName = 256
	// MaxOwnMultipliers bounds the different multipliers of a namespace that tenants have of their own:
	// each rule that reads them is compiled for each. Who writes entries keeps to it.
	MaxOwnMultipliers = 64
	// mostOwnMultipliers is how many there may be here: while all tenants have others, one after the
	// other, the old and the new stand beside each other, and beside them what has ended since a minute.
	mostOwnMultipliers = 4 * MaxOwnMultipliers

	tenantShards = 256 // of a namespace's tenants: one that changes is copied with those of its shard
	// ownEpoch marks the epochs of variants that are made while a set is in force.
	ownEpoch = 1 << 30
)

// OwnEpoch says that an epoch is of a variant for a multiplier that tenants have of their own, which does
// not tell of which set.
func OwnEpoch(epoch uint32) bool { return epoch&ownEpoch != 0 }

// Check returns what is wrong with an entry, whatever the document has; nil: nothing.
func (e *TenantEntry) Check() *Problem {
	wrong := func(path, code, hint, format string, args ...any) *Problem {
		return &Problem{Path: path, Code: code, Hint: hint, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case e.Tenant == "" || len(e.Tenant) > maxTenantName || !utf8.ValidString(e.Tenant):
		return wrong("tenant", "E340", "the value that tier_from has of its requests, at most 256 bytes", "%.80q is no name of a tenant", e.Tenant)
	case e.Deleted:
		return nil
	case (e.Tier == "") == (e.Multiply == 0):
		return wrong("tier", "E341", `such as {"tier": "gold"}, or {"multiply": 3.5}`, "want a tier or a multiplier, one of them")
	case e.Tier == "" && !(e.Multiply >= minMultiply && e.Multiply <= maxMultiply):
		return wrong("multiply", "E191", "0.001 to 1000000", "%v is out of range", e.Multiply)
	case len(e.Tier) > maxTenantName || !utf8.ValidString(e.Tier):
		return wrong("tier", "E342", "the name of one of the document's tenants", "%.80q is no name", e.Tier)
	}
	return nil
}

// plan is what tenants have; those who have the same share it.
type plan struct {
	tier     string
	multiply float64 // where there is no tier
	users    int
	told     bool // that the set in force has no such tier
}

// assigned is what one tenant has.
type assigned struct {
	plan  *plan
	until int64 // ns since 1970; 0: for good
}

// tenantTable is the tenants of a namespace. It is read without a lock: a shard is replaced whole.
type tenantTable struct {
	seed   maphash.Seed
	count  atomic.Int64
	shards [tenantShards]atomic.Pointer[map[string]assigned]

	// Guarded by Tenants.mu.
	plans map[plan]*plan // by tier and multiplier
	ends  int            // how many end
}

// ownVariants are those of a rule by multipliers that tenants have of their own.
type ownVariants = atomic.Pointer[map[float64]*Rule]

func (t *tenantTable) shard(tenant string) int {
	return int(maphash.String(t.seed, tenant) % tenantShards)
}

// find is what a tenant has at an instant.
func (t *tenantTable) find(tenant string, now int64) (a assigned, ok bool) {
	if t.count.Load() == 0 {
		return assigned{}, false
	}
	m := t.shards[t.shard(tenant)].Load()
	if m == nil {
		return assigned{}, false
	}
	a, ok = (*m)[tenant]
	return a, ok && (a.until == 0 || now < a.until)
}

// Tenants are what tenants have by a store of their own, of all namespaces. One changes at a time, which
// compiles no rules, and is in force at once: what was counted is judged by the other limit. It is of
// one node, and safe for concurrent use.
type Tenants struct {
	tell func(error)

	mu     sync.Mutex // guards what follows; no request takes it
	tables map[string]*tenantTable
	set    *Set // in force; nil: none yet
	epochs uint32
	says   []error // what is to be told once the mutex is free
}

// NewTenants has none yet. tell hears of entries that a set has no tier for, or no limit; nil: nobody
// does.
func NewTenants(tell func(error)) *Tenants {
	if tell == nil {
		tell = func(error) {}
	}
	return &Tenants{tell: tell, tables: map[string]*tenantTable{}}
}

// table is that of a namespace.
func (t *Tenants) table(namespace string) *tenantTable {
	table := t.tables[namespace]
	if table == nil {
		table = &tenantTable{seed: maphash.MakeSeed(), plans: map[plan]*plan{}}
		t.tables[namespace] = table
	}
	return table
}

// Use has a sealed set, which nobody else has yet, find its tenants here, and compiles its rules for those
// that have multipliers of their own. It takes the place of the set before.
func (t *Tenants) Use(set *Set) {
	defer t.tellAll()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set = set
	for _, ns := range set.namespaces {
		if len(set.tiered(ns.Name)) == 0 {
			continue
		}
		ns.store = t.table(ns.Name)
		for _, p := range ns.store.plans {
			p.told = false
			t.compile(ns, p)
		}
	}
}

// tellAll tells what there is to tell.
func (t *Tenants) tellAll() {
	t.mu.Lock()
	says := t.says
	t.says = nil
	t.mu.Unlock()
	for _, err := range says {
		t.tell(err)
	}
}

// tiered are the rules of a namespace whose limits tenants multiply.
func (s *Set) tiered(namespace string) (rules []*Rule) {
	for _, r := range s.rules {
		if r.Namespace == namespace && r.tierFrom != nil {
			rules = append(rules, r)
		}
	}
	return rules
}

// compile makes what the set in force needs for a plan, or tells why it cannot.
func (t *Tenants) compile(ns *Namespace, p *plan) {
	if p.tier != "" {
		if _, known := ns.tenants[p.tier]; !known && !p.told {
			p.told = true
			t.says = append(t.says, fmt.Errorf("tenants: namespace %s has no tier %q: the rules' own limits hold for who has it; write it to the document's tenants, or give them another (tiers are: %s)", ns.Name, p.tier, ns.tierNames()))
		}
		return
	}
	t.epochs++
	for _, r := range t.set.tiered(ns.Name) {
		v, problems := r.multiplied(p.multiply)
		if len(problems) > 0 {
			t.says = append(t.says, fmt.Errorf("tenants: namespace %s, multiply: %v: rule %s: %s (%s): its own limits hold for who has that", ns.Name, p.multiply, r.Name, problems[0].Detail, problems[0].Hint))
			continue
		}
		v.Epoch = ownEpoch | t.epochs
		v.seal(t.set.epoch)
		own := map[float64]*Rule{}
		if was := r.own.Load(); was != nil {
			own = maps.Clone(*was)
		}
		own[p.multiply] = v
		r.own.Store(&own)
	}
}

// drop takes away what nobody has any more.
func (t *Tenants) drop(namespace string, p *plan) {
	delete(t.tables[namespace].plans, plan{tier: p.tier, multiply: p.multiply})
	if p.tier != "" || t.set == nil {
		return
	}
	for _, r := range t.set.tiered(namespace) {
		if was := r.own.Load(); was != nil {
			own := maps.Clone(*was)
			delete(own, p.multiply)
			r.own.Store(&own)
		}
	}
}

// multiplied is a variant of the rule, and what is wrong with it.
func (r *Rule) multiplied(m float64) (*Rule, Problems) {
	c := compiler{told: map[[2]string]bool{}}
	for _, rate := range r.Rates {
		if !rate.PerRequest {
			c.multipliable("multiply", rate, m)
		}
	}
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return r.variantFor(m), nil
}

// variantFor is the rule with its limits multiplied.
func (r *Rule) variantFor(m float64) *Rule {
	v := *r
	v.of, v.tierFrom, v.variants, v.own = r, nil, nil, nil
	v.Rates = make([]*Rate, len(r.Rates))
	for i, rate := range r.Rates {
		v.Rates[i] = rate.times(decimal(m))
	}
	return &v
}

// ErrTooManyMultipliers: tenants of a namespace have too many multipliers of their own.
var ErrTooManyMultipliers = errors.New("too many different multipliers")

// Put puts entries in force, and returns which it refuses, by their places: what those tenants had before
// stays.
func (t *Tenants) Put(entries []TenantEntry) (refused map[int]error) {
	defer t.tellAll()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.putAll(entries)
}

func (t *Tenants) putAll(entries []TenantEntry) (refused map[int]error) {
	changed := map[*tenantTable]map[int]map[string]assigned{} // shards that are copied
	unused := map[*plan]string{}
	for i := range entries {
		e := &entries[i]
		err := error(nil)
		if p := e.Check(); p != nil {
			err = fmt.Errorf("%s: %s; want %s", p.Path, p.Detail, p.Hint)
		} else {
			err = t.put(e, changed, unused)
		}
		if err != nil {
			if refused == nil {
				refused = map[int]error{}
			}
			refused[i] = err
		}
	}
	for table, shards := range changed {
		for at, m := range shards {
			table.shards[at].Store(&m)
		}
	}
	for p, namespace := range unused {
		if p.users == 0 {
			t.drop(namespace, p)
		}
	}
	return refused
}

func (t *Tenants) put(e *TenantEntry, changed map[*tenantTable]map[int]map[string]assigned, unused map[*plan]string) error {
	table := t.table(e.Namespace)
	at := table.shard(e.Tenant)
	if changed[table] == nil {
		changed[table] = map[int]map[string]assigned{}
	}
	m := changed[table][at]
	if m == nil {
		m = map[string]assigned{}
		if was := table.shards[at].Load(); was != nil {
			m = maps.Clone(*was)
		}
		changed[table][at] = m
	}
	was, had := m[e.Tenant]
	if !e.Deleted {
		p, err := t.plan(table, e, was.plan)
		if err != nil {
			return err
		}
		p.users++
		now := assigned{plan: p}
		if !e.Until.IsZero() {
			now.until = e.Until.UnixNano()
			table.ends++
		}
		m[e.Tenant] = now
	} else {
		delete(m, e.Tenant)
	}
	if had {
		if was.until != 0 {
			table.ends--
		}
		if was.plan.users--; was.plan.users == 0 {
			unused[was.plan] = e.Namespace
		}
	}
	switch {
	case had && e.Deleted:
		table.count.Add(-1)
	case !had && !e.Deleted:
		table.count.Add(1)
	}
	return nil
}

// plan is that of an entry, which has taken the place of another of its tenant's.
func (t *Tenants) plan(table *tenantTable, e *TenantEntry, was *plan) (*plan, error) {
	key := plan{tier: e.Tier, multiply: e.Multiply}
	if p := table.plans[key]; p != nil {
		return p, nil
	}
	if e.Tier == "" {
		own := 0
		for _, p := range table.plans {
			if p.tier == "" && p.users > 0 && !(p == was && p.users == 1) {
				own++
			}
		}
		if own >= mostOwnMultipliers {
			return nil, fmt.Errorf("multiply: %v: %w: tenants of namespace %s have %d of their own; make tiers of them", e.Multiply, ErrTooManyMultipliers, e.Namespace, own)
		}
	}
	p := new(key)
	table.plans[key] = p
	if t.set != nil {
		if ns := t.set.namespaces[e.Namespace]; ns != nil && ns.store == table {
			t.compile(ns, p)
		}
	}
	return p, nil
}

// Sweep forgets entries that have ended, and says how many those were. Nobody but memory needs that: what
// has ended is not in force.
func (t *Tenants) Sweep(now time.Time) (swept int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var ended []TenantEntry
	for namespace, table := range t.tables {
		if table.ends == 0 {
			continue
		}
		for i := range table.shards {
			m := table.shards[i].Load()
			if m == nil {
				continue
			}
			for name, a := range *m {
				if a.until != 0 && a.until <= now.UnixNano() {
					ended = append(ended, TenantEntry{Namespace: namespace, Tenant: name, Deleted: true})
				}
			}
		}
	}
	t.putAll(ended)
	return len(ended)
}

// Len is how many tenants of a namespace have something here.
func (t *Tenants) Len(namespace string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if table := t.tables[namespace]; table != nil {
		return int(table.count.Load())
	}
	return 0
}
