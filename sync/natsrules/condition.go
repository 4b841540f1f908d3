package natsrules

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Condition is by what a rollout ends by itself. The zero value: by nothing.
type Condition struct {
	// After is how long it has to hold until the version is promoted; 0: it is not, by itself.
	After time.Duration
	// NewlyDenied is the most that may be denied by the new limits and admitted by the old, of the requests that
	// were compared, and Denied of all requests of the namespace. Above it the version is reverted.
	NewlyDenied, Denied Most
	// Requests is how many there must be before it is judged by them.
	Requests uint64
}

// Most is a part in percent that may be denied; Stated: there is one.
type Most struct {
	Stated  bool
	Percent float64
}

// What a Condition may say.
const (
	LeastAfter   = time.Second
	LongestAfter = 30 * 24 * time.Hour
	MostRequests = 1 << 40
	// DefaultRequests is Condition.Requests where nobody says otherwise.
	DefaultRequests = 500
)

// Stated says that there is a condition.
func (c *Condition) Stated() bool { return *c != Condition{} }

// Exceeded says that more was denied of so many requests than may be.
func (m Most) Exceeded(denied, of uint64) bool {
	return m.Stated && float64(denied)*100 > m.Percent*float64(of)
}

// String says it in words.
func (c Condition) String() string {
	var of []string
	if c.NewlyDenied.Stated {
		of = append(of, fmt.Sprintf("%v %% newly denied", c.NewlyDenied.Percent))
	}
	if c.Denied.Stated {
		of = append(of, fmt.Sprintf("%v %% denied", c.Denied.Percent))
	}
	text := fmt.Sprintf("reverted above %s, of at least %d requests", strings.Join(of, " or "), c.Requests)
	if c.After > 0 {
		text = fmt.Sprintf("promoted after %v, ", c.After) + text
	}
	return text
}

// check returns what is wrong with a condition; nil: nothing.
func (c *Condition) check() error {
	if !c.Stated() {
		return nil
	}
	for _, m := range []Most{c.NewlyDenied, c.Denied} {
		if !(m.Percent >= 0 && m.Percent < 100) || !m.Stated && m.Percent != 0 {
			return fmt.Errorf("%v percent: want 0 to less than 100", m.Percent)
		}
	}
	switch {
	case !c.NewlyDenied.Stated && !c.Denied.Stated:
		return fmt.Errorf("nothing that must hold")
	case c.After != 0 && (c.After < LeastAfter || c.After > LongestAfter || c.After%time.Millisecond != 0):
		return fmt.Errorf("after %v: want %v to %v, in whole milliseconds", c.After, LeastAfter, LongestAfter)
	case c.Requests == 0 || c.Requests > MostRequests:
		return fmt.Errorf("%d requests: want 1 to %d", c.Requests, MostRequests)
	}
	return nil
}

// storedCondition is a Condition as it is stored.
type storedCondition struct {
	After       int64    `json:"after_ms,omitempty"`
	NewlyDenied *float64 `json:"newly_denied,omitempty"`
	Denied      *float64 `json:"denied,omitempty"`
	Requests    uint64   `json:"requests"`
}

// A condition stands in the head of the packed version, as a field of gzip (RFC 1952, 2.3.1.1) of this name: what
// is unpacked there are builds that refuse, and a version must not be refused for what only says how it ends.
const conditionField = "SG"

// extra is the condition as a field of gzip; nil: there is none.
func (c *Condition) extra() ([]byte, error) {
	if !c.Stated() {
		return nil, nil
	}
	s := storedCondition{After: c.After.Milliseconds(), Requests: c.Requests}
	if c.NewlyDenied.Stated {
		s.NewlyDenied = &c.NewlyDenied.Percent
	}
	if c.Denied.Stated {
		s.Denied = &c.Denied.Percent
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("condition: %w", err)
	}
	return append(binary.LittleEndian.AppendUint16([]byte(conditionField), uint16(len(text))), text...), nil
}

// conditionOf reads what extra wrote. One that cannot be read, or says what this build does not know, is none: to
// end a rollout by a part of what somebody has said would be worse than to wait for him.
func conditionOf(extra []byte) (c Condition) {
	if len(extra) < 4 || string(extra[:2]) != conditionField || int(binary.LittleEndian.Uint16(extra[2:])) != len(extra)-4 {
		return Condition{}
	}
	var s storedCondition
	in := json.NewDecoder(bytes.NewReader(extra[4:]))
	in.DisallowUnknownFields()
	if in.Decode(&s) != nil || in.More() || s.After < 0 || s.After > LongestAfter.Milliseconds() {
		return Condition{}
	}
	c = Condition{After: time.Duration(s.After) * time.Millisecond, Requests: s.Requests}
	if s.NewlyDenied != nil {
		c.NewlyDenied = Most{true, *s.NewlyDenied}
	}
	if s.Denied != nil {
		c.Denied = Most{true, *s.Denied}
	}
	if c.check() != nil {
		return Condition{}
	}
	return c
}
