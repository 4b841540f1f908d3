package limit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What entries beside the rules are called that are exceptions, and capacity.
const (
	EntryException = "except"
	EntryCapacity  = "capacity"
)

// Exception is what holds for one key of a rule until an instant, whatever the rule says.
// It is an operator's, and not a request's: it holds for whoever has the key.
type Exception struct {
	ID        string // tells it from others of its namespace
	Namespace string
	Rule      string
	Rate      string // by its name, or policy; "": all of the rule's that have a limit

	// Key is what the rule's key is made of, in its order. Where it must not be told, Name is
	// what the key is called under the cluster secret (deltasync.Hash), and Key is nil.
	Key  []string
	Name uint64

	Kind   ExceptionKind
	Amount uint64    // the limit, or how much more; of a reset a number that no other has
	Until  time.Time // zero: for good, as a reset is
	Since  time.Time // when it was made
}

// ExceptionKind is what an exception does.
type ExceptionKind uint8

const (
	// KeyReset has the key count under a name that no other has: all that was counted of it is
	// forgotten, penalties too. It stays, as without it the key would have its old name again.
	KeyReset ExceptionKind = iota + 1
	// KeyGrant is so much more than the limit, and KeyOverride another limit.
	KeyGrant
	KeyOverride
)

var exceptionNames = map[string]ExceptionKind{"reset": KeyReset, "grant": KeyGrant, "override": KeyOverride}

func (k ExceptionKind) String() string { return nameOf(exceptionNames, k) }

// ExceptionKindOf is the kind of a name; 0 where there is none.
func ExceptionKindOf(name string) ExceptionKind { return exceptionNames[name] }

// MaxExceptionTime is the longest that a grant or an override may hold.
const MaxExceptionTime = MaxWindow

// Holds says that the exception is in force at an instant.
func (e *Exception) Holds(now time.Time) bool { return e.Until.IsZero() || now.Before(e.Until) }

// On says that the exception is of a rate, as the rule has it.
func (e *Exception) On(r *Rate) bool {
	return e.Rate == "" || e.Rate == r.Name || e.Rate == r.Policy
}

// Does says what the exception does, in words.
func (e *Exception) Does() string {
	switch e.Kind {
	case KeyReset:
		return "counts anew since " + e.Since.UTC().Format(time.RFC3339)
	case KeyGrant:
		return fmt.Sprintf("%d more than the limit", e.Amount)
	}
	return fmt.Sprintf("a limit of %d", e.Amount)
}

// exceptionBody is what is kept of an exception beside who it is of, and when.
type exceptionBody struct {
	Rule  string   `json:"rule"`
	Rate  string   `json:"rate,omitempty"`
	Key   []string `json:"key,omitempty"`
	Name  string   `json:"name,omitempty"` // 16 hexadecimal digits
	Reset string   `json:"reset,omitempty"`
	Add   *uint64  `json:"add,omitempty"`
	Limit *uint64  `json:"limit,omitempty"`
}

// Body is the exception without its ID, Namespace, Since and Until, as it is stored.
func (e *Exception) Body() []byte {
	b := exceptionBody{Rule: e.Rule, Rate: e.Rate, Key: e.Key}
	if e.Name != 0 {
		b.Name = KeyName(e.Name)
	}
	switch e.Kind {
	case KeyReset:
		b.Reset = KeyName(e.Amount)
	case KeyGrant:
		b.Add = &e.Amount
	case KeyOverride:
		b.Limit = &e.Amount
	}
	body, _ := json.Marshal(b) // of texts and numbers it never fails
	return body
}

// ReadBody is Body the other way. What it means by some rules Set.Excepts says.
func (e *Exception) ReadBody(body []byte) error {
	var b exceptionBody
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields() // it may mean something else to who wrote it
	if err := in.Decode(&b); err != nil {
		return fmt.Errorf("exception: %w", err)
	}
	e.Rule, e.Rate, e.Key, e.Name = b.Rule, b.Rate, b.Key, 0
	if b.Name != "" {
		name, err := ReadKeyName(b.Name)
		if err != nil {
			return fmt.Errorf("exception: name: %w", err)
		}
		e.Name = name
	}
	switch {
	case b.Reset != "" && b.Add == nil && b.Limit == nil:
		number, err := ReadKeyName(b.Reset)
		if err != nil {
			return fmt.Errorf("exception: reset: %w", err)
		}
		e.Kind, e.Amount = KeyReset, number
	case b.Reset == "" && b.Add != nil && b.Limit == nil:
		e.Kind, e.Amount = KeyGrant, *b.Add
	case b.Reset == "" && b.Add == nil && b.Limit != nil:
		e.Kind, e.Amount = KeyOverride, *b.Limit
	default:
		return errors.New("exception: want one of reset, add and limit")
	}
	return nil
}

// KeyName is what a key is called, for people: 16 hexadecimal digits.
func KeyName(name uint64) string { return fmt.Sprintf("%016x", name) }

// ReadKeyName is KeyName the other way.
func ReadKeyName(text string) (uint64, error) {
	name, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 || name == 0 {
		return 0, fmt.Errorf("%.40q is none of 16 hexadecimal digits", text)
	}
	return name, nil
}

// Excepts finds the rule of an exception, and says what is wrong with it by these rules.
func (s *Set) Excepts(e *Exception) (*Rule, *Problem) {
	wrong := func(path, code, hint, format string, args ...any) (*Rule, *Problem) {
		return nil, &Problem{Path: path, Code: code, Hint: hint, Detail: fmt.Sprintf(format, args...)}
	}
	ns := s.Namespace(e.Namespace)
	if ns == nil {
		return wrong("namespace", "E330", "one of: "+words(s.Names()), "there is no namespace %.80q", e.Namespace)
	}
	rule := s.named()[[2]string{e.Namespace, e.Rule}]
	if rule == nil {
		return wrong("rule", "E331", "one of: "+words(s.exceptable(e.Namespace)), "namespace %s has no rule %.80q with rates", e.Namespace, e.Rule)
	}
	if want := rule.KeyNames(); e.Name == 0 && (len(e.Key) != len(want) || slices.Contains(e.Key, "")) {
		return wrong("key", "E332", "the value of each of: "+strings.Join(want, ", "), "%d of the %d parts that the key of rule %s has", len(e.Key), len(want), e.Rule)
	}
	switch {
	case e.Kind < KeyReset || e.Kind > KeyOverride:
		return wrong("kind", "E333", "reset, grant, or override", "it does nothing")
	case e.Kind == KeyReset && e.Rate != "":
		return wrong("rate", "E334", "leave it out", "a reset is of the key, by whatever rate it counts")
	case e.Kind == KeyReset && e.Amount == 0:
		return wrong("reset", "E333", "a number above 0 that no other reset has", "0 resets nothing")
	case e.Kind == KeyReset:
		return rule, nil
	case e.Kind == KeyGrant && e.Amount == 0:
		return wrong("add", "E335", "1 or more; reset, where the key is to begin anew", "0 more is nothing")
	case e.Until.IsZero():
		return wrong("until", "E336", "a time, or a ttl such as 1h", "a %s ends some time", e.Kind)
	}
	var of []*Rate
	for _, r := range rule.Rates {
		if e.On(r) && !r.PerRequest {
			of = append(of, r)
		}
	}
	rates := func() string {
		var names []string
		for _, r := range rule.Rates {
			if !r.PerRequest {
				names = append(names, r.Name)
			}
		}
		return words(names)
	}
	switch {
	case len(of) == 0 && e.Rate != "" && slices.ContainsFunc(rule.Rates, e.On):
		return wrong("rate", "E337", "one of: "+rates(), "%s is a gap between requests, and has no other limit than its rule's", e.Rate)
	case len(of) == 0:
		return wrong("rate", "E337", "one of: "+rates(), "rule %s has no rate %.80q", e.Rule, e.Rate)
	case len(of) > 1 && e.Kind == KeyOverride:
		return wrong("rate", "E337", "one of: "+rates(), "rule %s has %d rates, and one limit is not that of all", e.Rule, len(of))
	}
	for _, r := range of {
		switch most := r.most(); {
		case r.Consistency == Strict:
			return wrong("rate", "E338", "reset the key, or change the rule's limit", "%s is strict: rights in it are held by edges, for some time after a limit has ended, and it would be exceeded then", r.Policy)
		case e.Amount > most, e.Kind == KeyGrant && r.Limit+e.Amount > most:
			return wrong(amountWord(e.Kind), "E335", "at most "+strconv.FormatUint(most, 10), "%d is more than %s can count", e.Amount, r.Policy)
		}
	}
	return rule, nil
}

// named are the rules of documents that have rates, by namespace and name.
func (s *Set) named() map[[2]string]*Rule {
	s.naming.Do(func() {
		s.byName = make(map[[2]string]*Rule, len(s.rules))
		for _, r := range s.rules {
			if r.Live == nil && !r.Brought && len(r.Rates) > 0 {
				s.byName[[2]string{r.Namespace, r.Name}] = r
			}
		}
	})
	return s.byName
}

// exceptable are those of a namespace, by name.
func (s *Set) exceptable(namespace string) (names []string) {
	for _, r := range s.rules {
		if r.Namespace == namespace && s.named()[[2]string{namespace, r.Name}] == r {
			names = append(names, r.Name)
		}
	}
	return names
}

func amountWord(k ExceptionKind) string {
	if k == KeyGrant {
		return "add"
	}
	return "limit"
}

// words are some of a list, for a hint.
func words(list []string) string {
	told := strings.Join(list[:min(len(list), mostWords)], ", ")
	if more := len(list) - mostWords; more > 0 {
		told += fmt.Sprintf(" and %d more", more)
	}
	return told
}

// KeyNames are what the parts of the rule's key are called.
func (r *Rule) KeyNames() []string {
	names := make([]string, len(r.key))
	for i := range r.key {
		names[i] = r.key[i].name
	}
	return names
}

// AppendKeyOf is AppendKey for the values of a key's parts, each of which there must be.
func (r *Rule) AppendKeyOf(dst []byte, values []string) []byte {
	for i := range r.key {
		dst = r.key[i].append(dst, values[i], i == len(r.key)-1)
	}
	return dst
}

// SameKey says that two rules name their keys by the same attributes, so that one value is
// told of both.
func (r *Rule) SameKey(other *Rule) bool {
	return slices.EqualFunc(r.key, other.key, func(a, b keyPart) bool {
		return a.name == b.name && a.ip == b.ip && a.v4 == b.v4 && a.v6 == b.v6 && slices.Equal(a.slots, b.slots)
	})
}

// SubBy is Sub as the node of a secret would make it.
func (r *Rule) SubBy(sub func(identity []byte) [2]uint64) [2]uint64 { return sub(r.identity) }

// WithLimit is the rate with another limit, as an override of a request would have it; the
// rate itself where it has no other. It is made anew each time: keep it.
func (r *Rate) WithLimit(limit uint64) *Rate {
	if limit = min(limit, r.most()); r.PerRequest || limit == r.Limit {
		return r
	}
	return r.scaledTo(limit)
}
