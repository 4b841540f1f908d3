package chaos

import (
	"fmt"
	"sync"
	"testing"
)

// key is what counts stand under: an attribute of a call, and its value.
type key struct{ attribute, value string }

func (k key) String() string { return k.attribute + "=" + k.value }

// span is what must be counted of a key, and what may be.
type span struct{ least, most uint64 }

// truth is what really happened, as callers saw it.
type truth struct {
	mu sync.Mutex
	// open are calls that may have been counted: begun, and not denied. Guarded
	// by mu, as all below.
	open map[key]uint64
	// unsure are those of them that nobody may know of: they had no answer, or
	// the edge died that had not told them yet.
	unsure map[key]uint64
}

func newTruth() *truth {
	return &truth{open: map[key]uint64{}, unsure: map[key]uint64{}}
}

// begin is called before a call is sent.
func (t *truth) begin(k key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[k]++
}

// outcome is how a call ended.
type outcome int

const (
	allowed outcome = iota
	denied
	unknown // it had no answer
)

// end is called when a call has ended, and returns an error if the answer told
// of more than there is.
func (t *truth) end(k key, o outcome, used uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch o {
	case denied:
		t.open[k]--
	case unknown:
		t.unsure[k]++
	}
	if used > t.open[k] {
		return fmt.Errorf("%d are said to be used of %v, of which at most %d were admitted", used, k, t.open[k])
	}
	return nil
}

// lose says that n calls died with the edge that had admitted them.
func (t *truth) lose(k key, n uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unsure[k] += n
}

// spans are what is true of the keys, when no call is under way.
func (t *truth) spans(keys []key) map[key]span {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[key]span{}
	for _, k := range keys {
		all[k] = span{least: t.open[k] - t.unsure[k], most: t.open[k]}
	}
	return all
}

// agreed returns nil if all edges believe the same of every key, and that is
// true.
func agreed(names []string, believed []map[key]uint64, keys []key, spans map[key]span) error {
	wrong, first := 0, error(nil)
	for _, k := range keys {
		s := spans[k]
		for i, b := range believed {
			var err error
			switch got := b[k]; {
			case got > s.most:
				err = fmt.Errorf("%s believes that %d of %v are used: invented, want at most %d", names[i], got, k, s.most)
			case got < s.least:
				err = fmt.Errorf("%s believes that %d of %v are used: lost, want at least %d", names[i], got, k, s.least)
			case got != believed[0][k]:
				err = fmt.Errorf("%s believes that %d of %v are used, and %s that %d are", names[i], got, k, names[0], believed[0][k])
			default:
				continue
			}
			wrong++
			if first == nil {
				first = err
			}
		}
	}
	if wrong > 1 {
		return fmt.Errorf("%w, and %d more like it", first, wrong-1)
	}
	return first
}

func TestTruth(t *testing.T) {
	truth, k := newTruth(), key{"user", "a"}
	for range 5 {
		truth.begin(k)
	}
	for i, c := range []struct {
		o     outcome
		used  uint64
		wrong bool
	}{
		{allowed, 5, false}, // calls under way may count already
		{denied, 4, false},
		{allowed, 5, true}, // the denied one does not
		{unknown, 0, false},
		{allowed, 4, false},
	} {
		if err := truth.end(k, c.o, c.used); (err != nil) != c.wrong {
			t.Errorf("end of call %d: %v, want an error: %v", i, err, c.wrong)
		}
	}
	truth.lose(k, 1)
	if got := truth.spans([]key{k})[k]; got != (span{2, 4}) {
		t.Errorf("span = %+v, want 2 to 4: of 5 calls one was denied, one had no answer, one was lost", got)
	}
}

func TestAgreed(t *testing.T) {
	a, b := key{"user", "a"}, key{"user", "b"}
	spans := map[key]span{a: {10, 10}, b: {3, 5}}
	for name, c := range map[string]struct {
		believed []map[key]uint64
		want     string
	}{
		"all is well":        {[]map[key]uint64{{a: 10, b: 4}, {a: 10, b: 4}}, ""},
		"lost":               {[]map[key]uint64{{a: 10, b: 4}, {a: 9, b: 4}}, "two believes that 9 of user=a are used: lost, want at least 10"},
		"lost by all":        {[]map[key]uint64{{a: 10, b: 2}, {a: 10, b: 2}}, "one believes that 2 of user=b are used: lost, want at least 3, and 1 more like it"},
		"never heard of":     {[]map[key]uint64{{a: 10, b: 4}, {b: 4}}, "two believes that 0 of user=a are used: lost, want at least 10"},
		"invented":           {[]map[key]uint64{{a: 11, b: 4}, {a: 10, b: 4}}, "one believes that 11 of user=a are used: invented, want at most 10, and 1 more like it"},
		"of different minds": {[]map[key]uint64{{a: 10, b: 4}, {a: 10, b: 5}}, "two believes that 5 of user=b are used, and one that 4 are"},
	} {
		got := ""
		if err := agreed([]string{"one", "two"}, c.believed, []key{a, b}, spans); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
