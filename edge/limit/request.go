package limit

import (
	"net/textproto"
	"strings"
	"sync"
	"time"
)

// Slots of the attributes that every namespace knows. The others are numbered
// when the rules are compiled, so that a request is a short array and not a
// map.
const (
	slotMethod = iota
	slotPath
	slotHost
	slotClientIP
	fixedSlots
)

// MaxCounters bounds the rates that one request can meet, over all groups; where its path
// can be read in several ways, as many for each.
const MaxCounters = 32

const headerPrefix = "header."

var fixedNames = [fixedSlots]string{"method", "path", "host", "client_ip"}

// Namespace is the compiled rules of one namespace.
type Namespace struct {
	Name    string
	Version uint64  // of the document
	groups  []group // the first match of each applies
	byPath  bool    // see ReadsPath
	slots   map[string]int
	// tenants are the multipliers of tenants, by their place among all.
	tenants     map[string]int
	multipliers []float64
	store       *tenantTable // what tenants have beside the document; nil: nothing, ever
	// headers are the request headers that some rule reads, and their slots by their canonical
	// names, and by these in lower case.
	headers        []headerSlot
	named, lowered map[string]int
	pool           sync.Pool
	// descriptors is the tree that the rules were made of; nil: they were written as rules.
	descriptors      *Descriptors
	descriptorCharge Charging
}

// DescriptorCharge is what the descriptors of one call are charged where one of them is denied.
func (ns *Namespace) DescriptorCharge() Charging { return ns.descriptorCharge }

type headerSlot struct {
	name string // canonical
	slot int
}

// Request describes what a decision is asked for. It comes from
// Namespace.NewRequest, serves one goroutine, and goes back with Release.
type Request struct {
	ns    *Namespace
	attrs []string
	set   []int // slots that were given a value

	Cost    uint64 // 0: as the rule says; above 2^53 it is above all limits, and counts as 2^53 + 1
	Peek    bool   // decide, charge nothing
	Details bool   // fill States
	Bounds  bool   // fill Bound
	Trusted bool   // it comes from a caller whose word on its cost is taken
	Awaits  bool   // whoever is to await rights asks again: this denial is not charged, nor noted as asked for
	Receipt bool   // fill Charges
	Dates   bool   // fill Spent
	Made    int64  // of what is given back: when it was charged, ns since 1970; 0: nobody knows
	Replay  bool   // its client was told to wait, and somebody asks for it once more
	Ahead   bool   // of a peek: what is asked is asked once more, and told and charged then

	// Spent is when rights of strict limits were spent for it, by the clock that they go by.
	// Of what is given back without a receipt: when this edge did, in this life, if that has not
	// left its window; 0: it may have been another.
	Spent time.Duration

	// Lump is of how many requests its cost is, a multiple of it, which are yet to come and
	// are told with Asked, or, in a Report, were made. Of more than one nothing passes by
	// chance, and a denial's Remaining is what would pass. 0: it is of itself.
	Lump uint64

	// Recorded says, after a Report, an Answered or a GiveBack, whether anything was
	// counted, or given back, or is to be once the region has told what others counted.
	Recorded bool

	// Awaited is, after a Check with Awaits, the counter that it was denied by, if that may
	// soon have rights.
	Awaited uint64

	// States has, after a Check with Details, one row for each rate asked.
	States []State

	rules   []*Rule
	derived derived // what is read of every request stands before what it holds

	// Charges is, after a Check with Receipt, what was charged. It is good
	// until Reset: copy what is to be given back later.
	Charges   []Charge
	overrides []override

	// Bound is, after a Check with Bounds, how far the limit of the rate that decided
	// may be exceeded.
	Bound Bound

	key []byte
	now int64 // that it is judged as of; see At

	otherPaths []string // how other origins read its path
	met        []met    // by those; see Readings
}

// NewRequest returns an empty request. It allocates only until the pool is
// warm.
func (ns *Namespace) NewRequest() *Request {
	if req, ok := ns.pool.Get().(*Request); ok {
		return req
	}
	r := new(roomyRequest)
	r.ns = ns
	r.attrs, r.set, r.rules, r.key = r.attrRoom[:], r.setRoom[:0], r.ruleRoom[:0], r.keyRoom[:0]
	if len(ns.slots) > len(r.attrRoom) {
		r.attrs = make([]string, len(ns.slots))
	}
	return &r.Request
}

// roomyRequest is a request with room for what it refers to, as most need. What each
// request writes stands apart from what others write: small pieces of memory share cache
// lines, and requests of two processors would take them from each other. What is smaller
// than 512 bytes the allocator does not align to lines.
type roomyRequest struct {
	Request
	ruleRoom [4]*Rule
	setRoom  [12]int
	attrRoom [12]string
	keyRoom  [128]byte
}

// Release gives the request back. Nothing of it may be used afterwards.
func (req *Request) Release() {
	req.Reset()
	req.ns.pool.Put(req)
}

// Reset empties the request, so that one goroutine may ask with it again. It is
// cheaper than Release and NewRequest. A request that is kept goes on under the
// rules that it was made for, after a reload too: who keeps one for long takes
// a new one when the node's Rules() change.
func (req *Request) Reset() {
	for _, slot := range req.set {
		req.attrs[slot] = ""
	}
	if len(req.States) > 0 {
		clear(req.States)
	}
	if len(req.Charges) > 0 {
		clear(req.Charges)
	}
	req.derived.forget()
	req.set, req.rules = req.set[:0], req.rules[:0]
	req.States, req.Charges, req.overrides = req.States[:0], req.Charges[:0], req.overrides[:0]
	req.Cost, req.Peek, req.Details, req.Trusted, req.Receipt, req.Replay = 0, false, false, false, false, false
	clear(req.met)
	req.met = req.met[:0]
	req.Lump, req.Ahead, req.Made, req.now = 0, false, 0, 0
	req.Bounds, req.Bound, req.Awaits, req.Awaited, req.Dates, req.Spent, req.Recorded, req.otherPaths = false, Bound{}, false, 0, false, 0, false, nil
}

// Namespace is the one that the request was made for.
func (req *Request) Namespace() *Namespace { return req.ns }

// Set gives an attribute its value. An attribute that no rule reads is left
// out; known says whether one does.
func (req *Request) Set(name, value string) (known bool) {
	slot, ok := req.ns.Slot(name)
	if ok {
		req.SetSlot(slot, value)
	}
	return ok
}

// Slot is the place of one attribute in the requests of a namespace.
type Slot int

// Slot finds the place of an attribute, for SetSlot; ok is false where no rule
// reads it, and the place then one that SetSlot passes over. It holds for this
// namespace as it is compiled: the next set of rules has its own.
func (ns *Namespace) Slot(name string) (slot Slot, ok bool) {
	place, ok := ns.slots[name]
	if !ok && strings.HasPrefix(name, headerPrefix) {
		place, ok = ns.slots[canonicalAttribute(name)]
	}
	if !ok {
		return -1, false
	}
	return Slot(place), true
}

// SetSlot is Set for an attribute whose place is known: it saves looking the
// name up with every request.
func (req *Request) SetSlot(slot Slot, value string) {
	if slot >= 0 { // some rule reads it
		req.put(int(slot), value)
	}
}

func (req *Request) put(slot int, value string) {
	if req.attrs[slot] == "" && value != "" {
		req.set = append(req.set, slot)
	}
	req.attrs[slot] = value
}

// Get is the value of an attribute, "" where it is absent or no rule reads it.
func (req *Request) Get(name string) string {
	if slot, ok := req.ns.slots[name]; ok {
		return req.attrs[slot]
	}
	return ""
}

// ClientIP is the attribute of that name.
func (req *Request) ClientIP() string { return req.attrs[slotClientIP] }

// SetHTTP sets method, path, host and client_ip, and every header that a rule
// reads, from header (canonical names, as net/http has them). In a path what
// follows a question mark is a query: one that belongs to the path is written
// "%3F". The path is compared as it is given: who has it as a client wrote it, where
// "//login" and "/%6Cogin" may be "/login" to what serves it, gives the first of
// PathReadings, and AlsoPaths the others, as edge/httplimit does. It allocates nothing.
func (req *Request) SetHTTP(method, path, host, clientIP string, header map[string][]string) {
	req.put(slotMethod, method)
	req.put(slotPath, path)
	req.put(slotHost, host)
	req.put(slotClientIP, clientIP)
	if len(header) < len(req.ns.headers)/2 { // or it would take the longer, the more names rules read
		req.putAll(header, req.ns.named)
		return
	}
	for _, h := range req.ns.headers {
		if v := header[h.name]; len(v) > 0 {
			req.put(h.slot, v[0])
		}
	}
}

// putAll puts what a header has where slots say.
func (req *Request) putAll(header map[string][]string, slots map[string]int) {
	for name, v := range header {
		if slot, read := slots[name]; read && len(v) > 0 {
			req.put(slot, v[0])
		}
	}
}

// ReadsHeader says that some rule reads a header, by its canonical name.
func (ns *Namespace) ReadsHeader(name string) bool {
	_, reads := ns.named[name]
	return reads
}

// Rules are the rules that apply: the first match of each group, of other readings of
// the path as well. The slice serves until the next call or Release, and is Readings' too:
// who leaves some of it out takes a copy.
func (req *Request) Rules() []*Rule {
	req.derived.forget()
	req.rules = req.appendFirst(req.rules[:0])
	if req.Ambiguous() {
		req.meet()
	}
	return req.rules
}

// appendFirst appends the first rule of each group that matches.
func (req *Request) appendFirst(rules []*Rule) []*Rule {
	for i := range req.ns.groups {
		if r := req.ns.groups[i].first(req); r != nil {
			rules = append(rules, r.For(req))
		}
	}
	return rules
}

// Scratch is a buffer for building keys; hand back what it grew to.
func (req *Request) Scratch() []byte { return req.key[:0] }

// KeepScratch keeps the buffer that Scratch gave and appending made larger.
func (req *Request) KeepScratch(b []byte) { req.key = b }

func (req *Request) first(slots []int) string {
	for _, slot := range slots {
		if v := req.attrs[slot]; v != "" {
			return v
		}
	}
	return ""
}

func (r *Rule) hasKey(req *Request) bool {
	for i := range r.key {
		if req.first(r.key[i].slots) == "" {
			return false
		}
	}
	return true
}

// SameAttribute says that two names are of one attribute, however their headers are
// written. A caller may pass on host and header.Host: the later one counts.
func SameAttribute(a, b string) bool {
	x, header := strings.CutPrefix(a, headerPrefix)
	y, headers := strings.CutPrefix(b, headerPrefix)
	return a == b || header && headers && len(x) == len(y) && strings.EqualFold(x, y)
}

// canonicalAttribute writes "header.x-user-id" as "header.X-User-Id", and "header.host" as
// "host": net/http has it apart from the others.
func canonicalAttribute(name string) string {
	h, ok := strings.CutPrefix(name, headerPrefix)
	if !ok {
		return name
	}
	if h = textproto.CanonicalMIMEHeaderKey(h); h == "Host" {
		return fixedNames[slotHost]
	}
	return headerPrefix + h
}
