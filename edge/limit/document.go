package limit

import (
	"fmt"
	"strings"
	"time"
)

// Document is the rules of one namespace as an operator writes them. Zero
// fields take the defaults named beside them. Readers (package configs) fill
// it and keep where each field stood, so that a Problem can be shown there.
type Document struct {
	Namespace string // Envoy's domain
	Defaults  Defaults
	Keys      map[string]KeySource
	Tenants   map[string]TenantSpec
	Rules     []RuleSpec

	// Version is what who keeps the document knows it by, as when it was made; 0: by nothing. It is no part
	// of the rules, and told of them: see Namespace.
	Version uint64

	// Descriptors are, in place of all that stands above but Defaults, a tree of limits
	// as envoyproxy/ratelimit has them: its root. The namespace may have any name then.
	Descriptors *DescriptorSpec
}

// Defaults apply to the rules and rates of the document that name nothing.
type Defaults struct {
	Algorithm   string // sub_windows
	Mode        string // enforce
	Consistency string // adaptive
	Scope       string // global
	Charge      string // all_or_nothing
	OnPartition string // share, of rates that have shares

	// Descriptors is what the descriptors of one call of Envoy's that others of it deny are
	// charged: each, or all_or_nothing. "": each, as with its reference.
	Descriptors string
}

// KeySource says where the value of a key comes from.
type KeySource struct {
	From       []string // attributes in order of preference: "client_ip", "header.X-User-Id"
	IPv4Prefix int      // bits of an IPv4 address that make the key; 0: 32
	IPv6Prefix int      // bits of an IPv6 address; 0: 64, so that one machine is one client
	IP         bool     // the value is an address (set where a prefix is given, or from is client_ip)
}

// RuleSpec is one rule.
type RuleSpec struct {
	Name        string
	Priority    int    // highest first; the first match of a group applies
	Group       string // rules of different groups apply together; "": the default group
	Generation  uint32 // raise it to start counting afresh
	Match       MatchSpec
	Key         []string // names of keys or attributes; none: one counter for everybody
	Rates       []RateSpec
	Mode        string // enforce | shadow
	Consistency string
	OnPartition string // share | open | closed
	Allow       bool   // no limit: lower rules of the group are not asked
	Deny        bool   // no entry: it denies all that it matches
	TellKeys    bool   // an edge may tell its operator, in clear, which keys it denies most
	Margin      MarginSpec
	Cost        CostSpec
	OnLimit     OnLimitSpec
	TierFrom    string // a key or attribute that names the tenant, whose multiplier the limits take

	MinGap           time.Duration // between two requests, whatever they cost: a rate of its own
	Charge           string        // all_or_nothing | each
	CountWhen        string        // an expression that must hold of the response for a request to be charged
	NearLimitPercent float64       // of each limit, from which on decisions say so; 0: never
	Drop             string        // hard | probabilistic: what becomes of requests in the margin
	Penalty          Penalty       // for those who were denied
	Classes          ClassesSpec   // requests that matter more than others
	MaxDelay         time.Duration // requests over a limit wait for room, no longer than this, before they are denied

	Candidate *CandidateSpec // nil: none is tried
}

// CandidateSpec is what a rule's limits may be one day: tried on the rule's requests beside those in
// force, and denying nobody. What it does not say is as the rule has it.
type CandidateSpec struct {
	Rates       []RateSpec
	Key         []string // nil: the rule's
	Mode        string   // shadow
	Consistency string
	Margin      MarginSpec
}

// MatchSpec is which requests a rule is for: all that is given must hold.
type MatchSpec struct {
	Path    []string // patterns: "*" is one segment, a last "**" the rest
	Methods []string
	Host    []string            // names; "*.example.com" is all below it
	CIDR    []string            // networks that client_ip is in
	Equals  map[string][]string // one of the values, by name of a key or attribute
	Has     []string            // attributes that must be present
	Lacks   []string            // attributes that must be absent
	When    string              // an expression that must hold; see Options
}

// RateSpec is a limit per window, or a bucket.
type RateSpec struct {
	Name        string // "": the window as written, "1m"
	Limit       uint64 // 0 denies everything
	Per         time.Duration
	Period      string // day | week | month | year, in place of Per: a fixed window of the calendar
	Algorithm   string
	Slices      int    // sub_windows: 40
	Oldest      string // sub_windows: linear | full
	Round       string // down | none | up
	Scope       string // edge (local) | region | global
	Align       string // fixed_window: epoch, or for calendar periods utc or a time zone's name
	Consistency string
	OnPartition string

	Surge         float64 // adaptive: so many times the limit is expected to come at once; 0: DefaultSurge
	LeewayPercent float64 // adaptive: of the limit, what may be admitted on incomplete knowledge; 0: DefaultLeeway

	StrictWait time.Duration // strict: whoever meets an edge without rights waits for the first ones, no longer than this; 0: is denied at once

	Capacity uint64        // of a bucket, in place of Limit and Per
	Refill   Flow          // token_bucket: how fast its tokens come back
	Initial  uint64        // token_bucket: what it starts with, once; 0: its capacity
	Outflow  Flow          // leaky_bucket: how fast it drains
	Queue    bool          // leaky_bucket: requests wait for their turn
	MaxWait  time.Duration // of a queue: no longer than this; 0: until it is full

	Lease       time.Duration // concurrency: how long a slot is held at the most, in place of Per
	CountDenied bool          // sliding_log: denied hits count too
}

// OnLimitSpec is what a denied client is told.
type OnLimitSpec struct {
	Status      int      // 429
	Headers     []string // draft-11
	ShowHeaders string   // tightest | all | none
	Defer       DeferSpec
}

// DeferSpec lets denied requests wait for room, where a proxy keeps them: see edge/deferred.
type DeferSpec struct {
	For     time.Duration // they wait for so long at the most; 0: none waits
	Methods []string      // that may, with an Idempotency-Key or without; none: any, with one
}

// Problem is one mistake in a document.
type Problem struct {
	Path   string // "rules[0].rates[1].per": where, from the document's root
	Code   string // "E104": stable, for tools
	Detail string // what is wrong
	Hint   string // how to mend it

	// Line and Column say where in an expression of several lines the mistake
	// is, from 1; 0: it is the whole, or no expression.
	Line, Column int
}

func (p Problem) Error() string {
	s := fmt.Sprintf("%s: %s", p.Path, p.Detail)
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Problems are all mistakes of a document, in the order of the document.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}
