package limit

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Mode says what a rule does with a request that is over its limit.
type Mode uint8

const (
	Enforce Mode = iota + 1 // deny it
	Shadow                  // admit it, and say that it would have been denied; it charges what it would if it was enforced
)

var modeNames = map[string]Mode{"enforce": Enforce, "shadow": Shadow}

func (m Mode) String() string { return nameOf(modeNames, m) }

// Show says which rates a rule tells its clients of.
type Show uint8

const (
	ShowTightest Show = iota + 1
	ShowAll
	ShowNone
)

var showNames = map[string]Show{"tightest": ShowTightest, "all": ShowAll, "none": ShowNone}

// HeaderProfiles are the names of the response header sets that a rule may
// ask for; the surfaces write them.
var HeaderProfiles = []string{"draft-11", "x-ratelimit", "github", "ietf-06", "envoy", "none"}

// Rule is a compiled rule: immutable and shared. Index is its place in the
// Set, so that others can keep something a rule in a slice.
type Rule struct {
	Index     int
	Namespace string
	Name      string
	Priority  int
	Mode      Mode
	Allow     bool
	Deny      bool // all that it matches; it has no rates
	TellKeys  bool // those that it denies most may be told in clear, at the edge
	Rates     []*Rate
	Status    int
	Headers   []string
	Show      Show
	Charge    Charging
	Elastic   *Elastic // nil: no elastic margin; else each rate has its Open
	Drop      Drop
	Penalty   Penalty
	MaxDelay  time.Duration // a request that has room within it is admitted, and told to wait; 0: none is
	Defer     DeferSpec     // what it denies may wait outside, if somebody keeps it
	Brought   bool          // it is of limits that descriptors bring: no document has it
	Candidate *Rule         // what is tried beside it, as a rule in shadow, and is none of a Request's Rules; nil: nothing
	Live      *Rule         // of a candidate: the rule that it is one of

	// Sub is a secret of this rule's own for naming its counters; see Seal.
	Sub [2]uint64
	// Epoch tells the rules of one sealed set from those of the next.
	Epoch uint32

	match     match
	counts    *counts
	key       []keyPart
	cost      uint64
	maxCost   uint64
	byRoute   []routeCost
	costFrom  []int     // the header that trusted callers name a cost in; nil: none
	countWhen Condition // nil: always
	// asksResponse says that countWhen looks at the response, countsByPath at the path.
	asksResponse, countsByPath bool

	classes  *classes // nil: none
	identity []byte

	tierFrom []int        // attributes that name the tenant; nil: no tenant is different
	variants []*Rule      // by multiplier of the document's
	own      *ownVariants // for tenants' own, where there is tierFrom
	tenants  string       // of a variant: whose it is, in words
	of       *Rule        // of a variant: what it is one of
}

type keyPart struct {
	source
	ip bool
	v4 int
	v6 int
}

// Defers is for how long a denied request of a method may wait to be done later; 0: it may
// not.
func (r *Rule) Defers(method string) time.Duration {
	if len(r.Defer.Methods) > 0 && !slices.Contains(r.Defer.Methods, method) {
		return 0
	}
	return r.Defer.For
}

// AppendKey appends the request's key under this rule to dst, each part but the
// last with its length before it, so that no two different keys read alike. ok
// is false where a part of the key is absent: then the rule does not apply.
func (r *Rule) AppendKey(dst []byte, req *Request) (key []byte, ok bool) {
	for i := range r.key {
		p := &r.key[i]
		value := req.first(p.slots)
		if value == "" {
			return dst, false
		}
		dst = p.append(dst, value, i == len(r.key)-1)
	}
	return dst, true
}

// TextMark is what AppendKey appends before the last part of a key, or the only one,
// that is a text.
const TextMark = 's'

// KeyIsText says that the key has one part, and that AppendKey appends TextMark and
// what Text returns.
func (r *Rule) KeyIsText() bool { return len(r.key) == 1 && !r.key[0].ip }

// Text is the only part of the request's key under a rule whose key is a text; "" where
// it is absent.
func (r *Rule) Text(req *Request) string { return req.first(r.key[0].slots) }

// append appends a part of a key, which is the last one or not.
func (p *keyPart) append(dst []byte, value string, last bool) []byte {
	if p.ip {
		if addr := NormalAddr(value); addr.IsValid() {
			return p.appendPrefix(dst, addr)
		}
	}
	if last {
		dst = append(dst, TextMark)
	} else {
		dst = append(dst, 'l', byte(len(value)>>24), byte(len(value)>>16), byte(len(value)>>8), byte(len(value)))
	}
	return append(dst, value...)
}

func (p *keyPart) appendPrefix(dst []byte, addr netip.Addr) []byte {
	n := p.v6
	if addr.Is4() {
		n = p.v4
	}
	prefix, err := addr.Prefix(n)
	if err != nil {
		return dst
	}
	if addr.Is4() {
		b := prefix.Addr().As4()
		return append(append(dst, '4'), b[:]...)
	}
	b := prefix.Addr().As16()
	return append(append(dst, '6'), b[:]...)
}

// KeyText is the request's key in clear, for the operator's eyes.
func (r *Rule) KeyText(req *Request) string {
	text := ""
	for i := range r.key {
		if i > 0 {
			text += ","
		}
		text += r.key[i].name + "=" + req.first(r.key[i].slots)
	}
	return text
}

// Pays says that what the rule borrows from its parent is charged to it with the
// request: a trial must not use up the limits of others, and who counts
// responses does not know yet whether anything counts.
func (r *Rule) Pays() bool { return r.Mode == Enforce && r.countWhen == nil }

// Lent are the rates that count what the rule borrowed of its parent; some may be nil. See
// Elastic.
func (r *Rule) Lent() []*Rate {
	if r.Elastic == nil {
		return nil
	}
	return r.Elastic.Lent
}

// Plain says that room for the cost of a request is all that its rates need:
// no class leaves some to others, and nothing is dropped at random.
func (r *Rule) Plain() bool { return r.classes == nil && r.Drop != DropProbabilistic }

// Enforced says that the rule is in force, and no trial.
func (r *Rule) Enforced() bool { return r.Mode == Enforce }

// Failures is how often a condition of the rule could not be evaluated: it did
// not hold then.
func (r *Rule) Failures() uint64 { return r.counts.failures.Load() }

// BadCosts is how often a trusted caller named a cost that is no number: the
// request cost what it costs without.
func (r *Rule) BadCosts() uint64 { return r.counts.badCosts.Load() }

// Tried counts a request that both a rule, or its variant for a tenant, and its candidate were asked about,
// by what each says of it: that it is denied.
func (r *Rule) Tried(live, candidate bool) { r.counts.tried[at(live)][at(candidate)].Add(1) }

// Trials is how often a request was admitted (0) or denied (1) by the rule's own limits, and by its
// candidate's: [live][candidate].
func (r *Rule) Trials() (n [2][2]uint64) {
	for live := range n {
		for candidate := range n[live] {
			n[live][candidate] = r.counts.tried[live][candidate].Load()
		}
	}
	return n
}

func at(denied bool) int {
	if denied {
		return 1
	}
	return 0
}

// counts is what a rule and its variants count of what went wrong, and of what was tried.
type counts struct {
	failures, badCosts atomic.Uint64
	tried              [2][2]atomic.Uint64
}

// Set is the compiled rules of all namespaces: immutable and shared.
type Set struct {
	namespaces map[string]*Namespace
	rules      []*Rule
	warnings   []Problems
	epoch      uint32 // that it was sealed with
	sealed     atomic.Bool

	descriptorLimits *Namespace // nil: it was not asked for, or all namespaces have their own

	naming sync.Once // fills in:
	byName map[[2]string]*Rule
}

// Namespace finds a namespace by name; nil where there is none.
func (s *Set) Namespace(name string) *Namespace {
	if s == nil {
		return nil
	}
	return s.namespaces[name]
}

// DescriptorLimits is the namespace of limits that descriptors bring to domains of rules,
// where Options asked for it, else nil; it has a tree of no limits, for AskOverride. It is
// none of Names.
func (s *Set) DescriptorLimits() *Namespace { return s.descriptorLimits }

// Only is the namespace of a set that has exactly one, else nil: requests that
// name none are meant for it.
func (s *Set) Only() *Namespace {
	if s == nil || len(s.namespaces) != 1 {
		return nil
	}
	for _, ns := range s.namespaces {
		return ns
	}
	return nil
}

// Names are the namespaces' names in order.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	names := make([]string, 0, len(s.namespaces))
	for name := range s.namespaces {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Rules are all rules of the set, each at its Index.
func (s *Set) Rules() []*Rule {
	if s == nil {
		return nil
	}
	return s.rules
}

// Written is how many rules the documents have.
func (s *Set) Written() (n int) {
	for _, r := range s.Rules() {
		if !r.Brought && r.Live == nil {
			n++
		}
	}
	return n
}

// Seal gives every rule its Sub, made by sub from the rule's identity (what
// tells its counters from those of any other rule), and its Epoch, before the set is
// shared. It is false where the set was sealed before, by whomever: it is left as it is,
// as it may be shared.
func (s *Set) Seal(epoch uint32, sub func(identity []byte) [2]uint64) bool {
	if !s.sealed.CompareAndSwap(false, true) {
		return false
	}
	s.epoch = epoch
	for _, r := range s.rules {
		r.Sub, r.Epoch = sub(r.identity), epoch*(maxMultipliers+1)
		r.seal(epoch)
		for i, v := range r.variants {
			v.Sub, v.Epoch = r.Sub, r.Epoch+uint32(i)+1
			v.seal(epoch)
		}
	}
	return true
}

// seal marks the rule's rates, and thereby all that are made of them, as the set's.
func (r *Rule) seal(epoch uint32) {
	for _, rate := range slices.Concat(r.Rates, r.Lent()) {
		for ; rate != nil; rate = rate.Open {
			rate.epoch = epoch
		}
	}
}

// Epoch is that of the set that the rate is of, be it a tenant's or as a request asked.
func (r *Rate) Epoch() uint32 { return r.epoch }

// Has says that a rate is one of the set's, be it a tenant's or as a request asked.
func (s *Set) Has(r *Rate) bool { return r.epoch == s.epoch }

// generation hashes what decides the meaning of a count: two rates with equal
// generations may share counters, whoever compiled them. What is counted belongs to
// it, by which responses (count_when is as Canonical has it) and in which unit. keys is
// what the document says of the names in the rule's key: where a part comes from, and
// how much of an address it is, belong to it.
func generation(rule *RuleSpec, ns string, r *Rate, keys map[string]KeySource) uint64 {
	h := fnv.New64a()
	field := func(s string) {
		_, _ = h.Write([]byte(strconv.Itoa(len(s)) + ":" + s)) // a hash never fails
	}
	field(ns)
	field(rule.Name)
	for _, k := range rule.Key {
		field(k)
		for _, from := range keys[k].From {
			field(canonicalAttribute(from))
		}
		if ip, v4, v6 := addressPart(k, keys[k]); ip {
			field(fmt.Sprintf("%d/%d", v4, v6))
		}
		field("")
	}
	field(strconv.FormatUint(uint64(rule.Generation), 10))
	field(r.Name)
	field(r.Algorithm.String())
	field(r.Scope.String())
	if r.Bucket() { // how large and how fast is judged anew from what is counted
		field(r.Width.String())
	} else {
		field(r.Window.String())
		field(strconv.Itoa(r.Slices))
	}
	if r.Period != NoPeriod {
		field(r.Period.String())
		field(r.Zone.String())
	}
	// What is not given is left out, so that it makes no other generation of all else.
	if rule.CountWhen != "" {
		field("count_when")
		field(rule.CountWhen)
	}
	if unit := rule.Cost.FromHeader; unit != "" && !r.CountsRequests() {
		field("cost")
		field(canonicalAttribute(headerPrefix + unit))
	}
	return h.Sum64()
}

func identity(ns string, rule *RuleSpec) []byte {
	var b []byte
	for _, s := range append([]string{ns, rule.Name, strconv.FormatUint(uint64(rule.Generation), 10)}, rule.Key...) {
		b = strconv.AppendInt(b, int64(len(s)), 10)
		b = append(b, ':')
		b = append(b, s...)
	}
	return b
}

// WindowName is a duration as rules write it: "1m", not "1m0s".
func WindowName(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d >= u.unit && d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String()
}
