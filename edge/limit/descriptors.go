package limit

import (
	"slices"
	"strings"
	"time"
)

// DescriptorSpec is a level of a tree of limits as envoyproxy/ratelimit has them, of
// which a Document may have one in place of rules; its root has no key.
type DescriptorSpec struct {
	Key, Value string // no value: any; a star stands for any text
	Limit      *DescriptorLimit
	Share      bool // requests that a star matches count together
	Below      []DescriptorSpec
}

// DescriptorLimit is the limit at one place of such a tree.
type DescriptorLimit struct {
	Name      string // "": none
	Requests  uint32
	Unit      time.Duration
	Unlimited bool           // it has no unit then
	Shadow    bool           // it admits what is over it
	Quota     bool           // it denies a call only where all such limits of the call do
	Replaces  []string       // names of limits that do not count in a call which meets this one
	Metadata  map[string]any // what is told of a call that it admits

	rule string // "": it counts nothing
}

// Descriptors is a compiled tree of limits. Each limit is a rule of its own, of fixed
// windows that begin with the Unix epoch, which charges what it denies; its key is what
// the path of a descriptor through the tree says. The tree knows which rule a descriptor
// meets, and under which key, as that depends on the order of its entries, which
// attributes do not have; so requests are asked through it: Find, then Ask.
type Descriptors struct {
	root      descriptor
	rule, key Slot
}

// Names of the attributes by which the rules of a tree are found. That of the rule is the
// rule's name.
const (
	descriptorRule = "descriptor_rule"
	descriptorKey  = "descriptor"
)

// descriptor is a place in the tree.
type descriptor struct {
	limit  *DescriptorLimit
	shared string                    // the value that all count as; "": each as its own
	values map[[2]string]*descriptor // below it, by key and value
	stars  []starred                 // in the order of the document
	keys   map[string]*descriptor    // those of any value
}

// starred is a place whose key or value has a star.
type starred struct {
	key   string   // "": the pattern is of the key and the value, joined by "_"
	parts []string // of the pattern, between its stars
	to    *descriptor
}

// Entry is a part of a descriptor, as the protocol has it.
type Entry interface {
	GetKey() string
	GetValue() string
}

// Descriptors is the namespace's tree; nil where it has rules.
func (ns *Namespace) Descriptors() *Descriptors {
	if ns == nil {
		return nil
	}
	return ns.descriptors
}

// FindDescriptor is the limit that a descriptor meets, and the key that it counts under;
// nil where it meets none. At each level the entry's key and value come first, then the
// first star that matches, then the key alone; if there is nothing below that, there is
// nothing. Unlike in the reference, where both are one text joined by "_", a key and a
// value are compared apart, and counted apart: clients choose values.
func FindDescriptor[E Entry](t *Descriptors, entries []E) (*DescriptorLimit, string) {
	at := &t.root
	var room [128]byte
	key := room[:0]
	for _, e := range entries {
		to, shared := at.next(e.GetKey(), e.GetValue())
		if to == nil {
			return nil, ""
		}
		value := e.GetValue()
		if shared {
			value = to.shared
		}
		key = appendEntry(key, e.GetKey(), value)
		at = to
	}
	if at.limit == nil || len(entries) == 0 {
		return nil, ""
	}
	return at.limit, string(key)
}

// next is where an entry leads, and whether it counts with others there.
func (d *descriptor) next(key, value string) (to *descriptor, shared bool) {
	if to := d.values[[2]string{key, value}]; to != nil && value != "" {
		return to, false
	}
	for i := range d.stars {
		if s := &d.stars[i]; s.matches(key, value) {
			return s.to, s.to.shared != ""
		}
	}
	return d.keys[key], false
}

func (s *starred) matches(key, value string) bool {
	if s.key == "" {
		return fits(s.parts, key+"_"+value)
	}
	return s.key == key && fits(s.parts, value)
}

// fits says that a text is made of the parts, with any text in the place of each star
// between them.
func fits(parts []string, text string) bool {
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}

// appendEntry appends an entry to a key that people may read: two that differ read
// differently.
func appendEntry(dst []byte, key, value string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = appendEscaped(dst, key)
	dst = append(dst, '=')
	return appendEscaped(dst, value)
}

func appendEscaped(dst []byte, s string) []byte {
	for i := range len(s) {
		if s[i] == ',' || s[i] == '=' || s[i] == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, s[i])
	}
	return dst
}

// Ask makes a request one of a limit, under a key; both are Find's.
func (t *Descriptors) Ask(req *Request, l *DescriptorLimit, key string) {
	if l.rule != "" {
		req.SetSlot(t.rule, l.rule)
		req.SetSlot(t.key, key)
	}
}

// AskOverride makes a request one of a limit that a descriptor brings with it: so many
// requests in a unit. It counts by all of its entries, apart from the limits of the tree; and
// by its domain, in those of Set.DescriptorLimits, which are all domains'.
func AskOverride[E Entry](t *Descriptors, req *Request, domain string, entries []E, unit time.Duration, requests uint32) (known bool) {
	at := slices.IndexFunc(DescriptorUnits, func(u DescriptorUnit) bool { return u.Length == unit })
	if at < 0 {
		return false
	}
	key := appendEscaped(nil, domain)
	for _, e := range entries {
		key = appendEntry(key, e.GetKey(), e.GetValue())
	}
	if len(key) == 0 {
		key = append(key, ',') // of no entries
	}
	name := overrideName(DescriptorUnits[at])
	req.SetSlot(t.rule, name)
	req.SetSlot(t.key, string(key))
	req.Override(name+"."+DescriptorUnits[at].Name, uint64(requests))
	return true
}

// DescriptorUnit is a unit of time that limits of a tree have.
type DescriptorUnit struct {
	Name   string
	Length time.Duration
}

// DescriptorUnits are all of them: a month and a year are as long as the reference has
// them, and begin as if all had been so since the Unix epoch.
var DescriptorUnits = []DescriptorUnit{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour},
	{"week", 7 * 24 * time.Hour}, {"month", 30 * 24 * time.Hour}, {"year", 365 * 24 * time.Hour},
}
