package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// A short flood in this process: all that is counted is, and nothing is missed
// but memory, of which tests need what they need.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := run([]string{"-scenario", s.name, "-keys", "120000", "-budget", "32"}, &out, io.Discard); err != nil {
				t.Fatal(err)
			}
			var r result
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			for _, err := range r.missed(options{budget: 1 << 40}) {
				t.Error(err)
			}
			if r.Others != 120_000/s.each || r.Limited != 4800 || r.Peak == 0 || r.Heap == 0 || r.Live == 0 || r.Micros == 0 {
				t.Errorf("not all is measured: %+v", r)
			}
			if s.limit == 1 && r.BlockedExact+r.BlockedFilter < r.Limited/10 {
				t.Errorf("%d keys are blocked, want a part of the %d limited ones", r.BlockedExact+r.BlockedFilter, r.Limited)
			}
		})
	}
}

// The report tells what a run missed.
func TestMissedTargetsAreTold(t *testing.T) {
	o := options{keys: 100, budget: 100 << 20}
	good := result{Name: "x", Peak: 110 << 20, Limited: 10, Others: 100, Wrong: 1, Regular: 100, RegularWrong: 1}
	if errs := good.missed(o); errs != nil {
		t.Errorf("missed: %v, want nothing", errs)
	}
	for want, spoil := range map[string]func(*result){
		"memory":          func(r *result) { r.Peak++ },
		"had left":        func(r *result) { r.Freed = 1 },
		"other keys":      func(r *result) { r.Wrong = 2 },
		"regular clients": func(r *result) { r.RegularWrong = 2 },
	} {
		bad := good
		spoil(&bad)
		if errs := bad.missed(o); len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("missed: %v, want %q named", errs, want)
		}
	}
	var report bytes.Buffer
	write(&report, o, []result{good}, "flood")
	if !strings.Contains(report.String(), "| 10 of 10 |") || !strings.Contains(report.String(), "≤ 110") {
		t.Errorf("report:\n%s", &report)
	}
}

func TestMistakesAreTold(t *testing.T) {
	for args, want := range map[string]string{
		"-keys 0": "-keys", "-budget 1": "-budget", "-scenario none": "none", "more": "no arguments",
	} {
		if err := run(strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to say %q", args, err, want)
		}
	}
}

// The same at an aggregator: with a budget so small that most keys are forgotten.
func TestAtAggregator(t *testing.T) {
	for _, s := range atAggregator {
		t.Run(s.name, func(t *testing.T) {
			var out bytes.Buffer
			keys := 120_000
			if s.redis {
				keys *= 10
			}
			if err := run([]string{"-scenario", s.name, "-keys", fmt.Sprint(keys), "-budget", "32"}, &out, io.Discard); err != nil {
				t.Fatal(err)
			}
			var r aftermath
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			for _, err := range r.missed(options{budget: 1 << 40}) {
				t.Error(err)
			}
			if r.Told != 120_000 || r.Limited != 4800 || r.Peak == 0 || r.Keys == 0 || r.Bytes > 32<<20 || r.Evicted+r.Refused == 0 {
				t.Errorf("not all is measured: %+v", r)
			}
			if r.LateFreed > 0 && s.uses < 25 {
				t.Errorf("%d of %d keys that reached their limit during the flood were forgotten", r.LateFreed, r.Late)
			}
			if r.Redis != nil && (r.Redis.Gone == 0 || r.Redis.Back < r.Redis.Gone/3) {
				t.Errorf("Redis shed %d limited keys and has %d back, want some shed, and of those that it has room for most back: %+v", r.Redis.Gone, r.Redis.Back, *r.Redis)
			}
		})
	}
}
