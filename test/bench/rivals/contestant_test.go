package main

import (
	"strings"
	"testing"
	"time"
)

// few is enough to see whether a contestant counts.
var few = population{keys: []string{keyName(1), keyName(2)}, quota: quota{limit: 5, per: time.Hour}}

// TestEveryLimiterDenies brings each limiter to its limit: what denies nothing
// would be measured doing nothing.
func TestEveryLimiterDenies(t *testing.T) {
	limiters := 0
	for _, c := range contestants() {
		if c.cache || c.batched {
			continue
		}
		limiters++
		t.Run(c.name, func(t *testing.T) {
			s := build(t, c, few)
			ask := s.worker(time.Now(), 0)
			for _, key := range few.keys {
				admitted := 1 // when it was built
				for ask(key) {
					if admitted++; admitted > int(few.quota.limit) {
						t.Fatalf("%s: %d admitted, want %d", key, admitted, few.quota.limit)
					}
				}
				if admitted != int(few.quota.limit) {
					t.Errorf("%s: %d admitted, want %d", key, admitted, few.quota.limit)
				}
			}
		})
	}
	if limiters < 12 {
		t.Errorf("%d limiters were tried, want all 12", limiters)
	}
}

// TestEveryCacheFinds asks for keys that are there and for one that is not.
func TestEveryCacheFinds(t *testing.T) {
	for _, c := range contestants() {
		if !c.cache || c.name == rowEmpty {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s := build(t, c, few)
			find := s.worker(time.Now(), 0)
			for _, key := range few.keys {
				if !find(key) {
					t.Errorf("%s was not found", key)
				}
			}
			if find(keyName(3)) {
				t.Errorf("%s was found, and never put in", keyName(3))
			}
			if s.count != nil && s.count() != uint64(len(few.keys)) {
				t.Errorf("count = %d, want %d", s.count(), len(few.keys))
			}
		})
	}
}

func build(t *testing.T, c contestant, p population) *subject {
	t.Helper()
	s, err := c.build(p, time.Now())
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	if s.during != nil {
		t.Cleanup(s.during())
	}
	if s.close != nil {
		t.Cleanup(s.close)
	}
	return s
}

func TestWorkload(t *testing.T) {
	w := newWorkload(100, 1<<12, 1.1)
	seen := map[string]int{}
	top := 0
	for i := range w.n {
		seen[w.at(i)]++
		top = max(top, seen[w.at(i)])
	}
	for key := range seen {
		if !strings.HasPrefix(key, "user-000000") {
			t.Fatalf("key %q was drawn, and is none of the first hundred", key)
		}
	}
	if len(seen) < 80 || top < w.n/10 {
		t.Errorf("%d keys of 100 were drawn, the most popular %d times of %d: not Zipf", len(seen), top, w.n)
	}
	if w.at(0) != w.at(w.n) {
		t.Errorf("request %d is %q, want the first again, %q", w.n, w.at(w.n), w.at(0))
	}
	if again := newWorkload(100, 1<<12, 1.1); again.arrived != w.arrived {
		t.Error("the same arguments drew other requests")
	}
}

// TestBatchesDeny: after the first two batches of one key all is denied.
func TestBatchesDeny(t *testing.T) {
	for _, c := range contestants() {
		if !c.batched {
			continue
		}
		ask := build(t, c, few).worker(time.Now(), 0)
		admitted := 0
		for i := range 1000 {
			if ask(few.keys[0]) && i >= 128 {
				admitted++
			}
		}
		if admitted > 0 {
			t.Errorf("%s: %d admitted beyond the limit", c.name, admitted)
		}
	}
}
