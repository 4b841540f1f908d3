package natsrules

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"
)

// A condition is kept with its version, and a build that knows of none has the version all the same.
func TestConditionIsKept(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	until := Condition{After: 30 * time.Minute, NewlyDenied: Most{true, 2}, Denied: Most{true, 0.5}, Requests: 500}
	v, err := s.Put(t.Context(), Version{Namespace: "acme", Text: "new", Regions: "us", Elsewhere: "old", Until: until}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(t.Context(), "acme"); err != nil || got != v || got.Until != until {
		t.Errorf("Get = %+v, %v, want %+v", got, err, v)
	}
	if text := until.String(); text != "promoted after 30m0s, reverted above 2 % newly denied or 0.5 % denied, of at least 500 requests" {
		t.Errorf("it is called %q", text)
	}
	value, err := v.pack()
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.NewDecoder(z).Decode(&fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"namespace", "version", "at_us", "text", "regions", "elsewhere"} { // which a build before knows
		delete(fields, name)
	}
	if len(fields) > 0 {
		t.Errorf("a build before refuses it for %v", fields)
	}
}

// What this build does not know is no condition, and no reason to refuse a version.
func TestConditionOfALaterBuild(t *testing.T) {
	good := Condition{NewlyDenied: Most{true, 0}, Requests: 1}
	extra, err := good.extra()
	if err != nil || conditionOf(extra) != good {
		t.Fatalf("%q is read as %+v, %v", extra, conditionOf(extra), err)
	}
	field := func(text string) []byte { return append([]byte{'S', 'G', byte(len(text)), 0}, text...) }
	if c := conditionOf(field(`{"denied":2,"requests":1}`)); c != (Condition{Denied: Most{true, 2}, Requests: 1}) {
		t.Fatalf("a good one is read as %+v", c)
	}
	for name, bad := range map[string][]byte{
		"nothing": nil, "cut": extra[:len(extra)-1], "more": append(bytes.Clone(extra), 'x'), "another field": append([]byte("XX"), extra[2:]...),
		"another word": field(`{"denied":2,"requests":1,"latency_ms":7}`), "no bound": field(`{"requests":1}`), "no JSON": field(`{`),
	} {
		if c := conditionOf(bad); c.Stated() {
			t.Errorf("%s: %q is read as %v", name, bad, c)
		}
	}
}

func TestBadConditions(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	most := Most{true, 2}
	for name, until := range map[string]Condition{
		"no bound":     {After: time.Minute, Requests: 1},
		"no requests":  {Denied: most},
		"100 %":        {Denied: Most{true, 100}, Requests: 1},
		"below 0":      {NewlyDenied: Most{true, -1}, Requests: 1},
		"no number":    {NewlyDenied: Most{true, math.NaN()}, Requests: 1},
		"not stated":   {Denied: most, NewlyDenied: Most{false, 1}, Requests: 1},
		"soon":         {Denied: most, Requests: 1, After: time.Millisecond},
		"late":         {Denied: most, Requests: 1, After: LongestAfter + time.Second},
		"microseconds": {Denied: most, Requests: 1, After: time.Second + time.Microsecond},
	} {
		if _, err := s.Put(t.Context(), Version{Namespace: "a", Text: "x", Regions: "eu", Until: until}, 0); !errors.Is(err, ErrBad) {
			t.Errorf("%s: %v, want ErrBad", name, err)
		}
	}
	if _, err := s.Put(t.Context(), Version{Namespace: "a", Text: "x", Until: Condition{Denied: most, Requests: 1}}, 0); !errors.Is(err, ErrBad) {
		t.Errorf("in force everywhere: %v, want ErrBad", err)
	}
}
