package deltasync

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// TellEvery says how often an edge tells what it decided, in seconds: what changed since it last did; and
// all of it at the first time, and every TellAll-th.
const (
	TellEvery = 10
	TellAll   = 6
)

// What a Tell may have at the most.
const (
	MaxTell      = 64 << 10 // bytes
	maxToldRules = 4096
	maxToldName  = 255     // bytes
	maxTold      = 1 << 53 // what JSON takes for a whole number everywhere
)

// Tell is what an edge says of what it decided. It is JSON, as it is small, rare, and read by no edge; readers
// ignore fields that they do not know. All counts are absolute since the rules of the namespace are in force
// at this life of the edge, so that one that is lost harms nothing. Nothing of it names a key, or a client.
type Tell struct {
	Incarnation uint64 `json:"incarnation"`     // of this life, in milliseconds since 1970
	Seq         uint64 `json:"seq"`             // 1 the first, and each higher
	Whole       bool   `json:"whole,omitempty"` // with it all that there is was told
	Rules       []Told `json:"rules,omitempty"`
}

// Told is what was decided by one rule. Rule "" is none: requests to which no rule applied; "other" are
// those for which an edge has no room.
type Told struct {
	Namespace string       `json:"namespace"`
	Version   uint64       `json:"version,omitempty"` // of the rules: when they were made, in microseconds since 1970; 0: they have none
	Rule      string       `json:"rule,omitempty"`
	Decided   Decisions    `json:"decided"`
	Trials    [2][2]uint64 `json:"trials"` // by the limits of the rule, and of its candidate: admitted (0), or denied (1)

	// Keys and KeysDenied are Sketches of the keys that it saw and denied of late; none where it did not, or
	// nobody counts.
	Keys       []byte `json:"keys,omitempty"`
	KeysDenied []byte `json:"keys_denied,omitempty"`
}

// Decisions counts decisions by their results, as spillgate_decisions_total does.
type Decisions struct {
	Allow      uint64 `json:"allow,omitempty"`
	Soft       uint64 `json:"soft,omitempty"`
	Elastic    uint64 `json:"elastic,omitempty"`
	Deny       uint64 `json:"deny,omitempty"`
	CutOff     uint64 `json:"cut_off,omitempty"`
	ShadowDeny uint64 `json:"shadow_deny,omitempty"`
	ReplayDeny uint64 `json:"replay_deny,omitempty"`
	None       uint64 `json:"none,omitempty"`
}

// All is how many requests were decided. What waits and is asked about again is none.
func (d *Decisions) All() uint64 {
	return d.Allow + d.Soft + d.Elastic + d.Deny + d.CutOff + d.ShadowDeny + d.None
}

// Denied is how many of them were denied.
func (d *Decisions) Denied() uint64 { return d.Deny + d.CutOff }

// Each calls do with each count of d and the same of other.
func (d *Decisions) Each(other *Decisions, do func(of *uint64, other uint64)) {
	do(&d.Allow, other.Allow)
	do(&d.Soft, other.Soft)
	do(&d.Elastic, other.Elastic)
	do(&d.Deny, other.Deny)
	do(&d.CutOff, other.CutOff)
	do(&d.ShadowDeny, other.ShadowDeny)
	do(&d.ReplayDeny, other.ReplayDeny)
	do(&d.None, other.None)
}

// Tells are the messages that tell of rules, each of at most MaxTell bytes, the first with a Seq. There is one
// where there are no rules. What has a name too long for one is left out.
func Tells(first Tell, rules []Told) (messages [][]byte, err error) {
	const room = MaxTell - 1<<10 // beside the rules
	rest := make([]json.RawMessage, 0, len(rules))
	for i := range rules {
		if !toldName(rules[i].Namespace) || !toldName(rules[i].Rule) {
			continue
		}
		text, err := json.Marshal(&rules[i])
		if err != nil {
			return nil, fmt.Errorf("tell of rule %.80q: %w", rules[i].Rule, err)
		}
		rest = append(rest, text)
	}
	whole := first.Whole
	for seq := first.Seq; len(rest) > 0 || len(messages) == 0; seq++ {
		n, bytes := 0, 0
		for n < len(rest) && n < maxToldRules && bytes+len(rest[n]) < room {
			bytes += len(rest[n]) + 1
			n++
		}
		message, err := json.Marshal(struct {
			Incarnation uint64            `json:"incarnation"`
			Seq         uint64            `json:"seq"`
			Whole       bool              `json:"whole,omitempty"`
			Rules       []json.RawMessage `json:"rules,omitempty"`
		}{first.Incarnation, seq, whole && n == len(rest), rest[:n]})
		if err != nil {
			return nil, fmt.Errorf("tell: %w", err)
		}
		messages, rest = append(messages, message), rest[n:]
	}
	return messages, nil
}

func toldName(name string) bool { return len(name) <= maxToldName && utf8.ValidString(name) }

// ReadTell reads a message of Tells. Its error wraps ErrFrame, or ErrTooLarge.
func ReadTell(message []byte) (*Tell, error) {
	if len(message) > MaxTell {
		return nil, fmt.Errorf("tell: %w: %d bytes, want at most %d", ErrTooLarge, len(message), MaxTell)
	}
	t := new(Tell)
	if err := json.Unmarshal(message, t); err != nil {
		return nil, fmt.Errorf("tell: %w: %w", ErrFrame, err)
	}
	switch {
	case t.Incarnation == 0, t.Seq == 0:
		return nil, fmt.Errorf("tell: %w: incarnation %d, seq %d: want both", ErrFrame, t.Incarnation, t.Seq)
	case len(t.Rules) > maxToldRules:
		return nil, fmt.Errorf("tell: %w: %d rules, want at most %d", ErrFrame, len(t.Rules), maxToldRules)
	}
	for i := range t.Rules {
		if err := t.Rules[i].check(); err != nil {
			return nil, fmt.Errorf("tell: rule %d: %w: %w", i, ErrFrame, err)
		}
	}
	return t, nil
}

func (t *Told) check() error {
	switch {
	case !toldName(t.Namespace) || t.Namespace == "":
		return fmt.Errorf("namespace %.80q: want 1 to %d bytes of UTF-8", t.Namespace, maxToldName)
	case !toldName(t.Rule):
		return fmt.Errorf("rule %.80q: want at most %d bytes of UTF-8", t.Rule, maxToldName)
	case t.Version > maxTold:
		return fmt.Errorf("version %d: want at most 2^53", t.Version)
	}
	most := uint64(0)
	t.Decided.Each(&t.Decided, func(_ *uint64, n uint64) { most = max(most, n) })
	for _, of := range t.Trials {
		most = max(most, of[0], of[1])
	}
	if most > maxTold {
		return fmt.Errorf("counts %d: want at most 2^53", most)
	}
	return nil
}
