package deltasync

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// What is told in several messages is read as it was, each at most as large as one may be.
func TestTells(t *testing.T) {
	for _, n := range []int{0, 1, 1000} {
		var rules []Told
		for i := range n {
			rules = append(rules, Told{
				Namespace: "shop", Version: 1<<53 - 1, Rule: fmt.Sprintf("%d-%s", i, strings.Repeat("r", 60)),
				Decided: Decisions{uint64(i), 1, 2, maxTold, 4, 5, 6, 7}, Trials: [2][2]uint64{{1, 2}, {3, uint64(i)}},
			})
		}
		messages, err := Tells(Tell{Incarnation: 5, Seq: 7, Whole: true}, append(rules, Told{Namespace: "shop", Rule: strings.Repeat("x", maxToldName+1)}))
		if err != nil {
			t.Fatal(err)
		}
		var got []Told
		for i, m := range messages {
			tell, err := ReadTell(m)
			if err != nil || tell.Incarnation != 5 || tell.Seq != 7+uint64(i) || tell.Whole != (i == len(messages)-1) {
				t.Fatalf("message %d of %d, %d bytes, is %+v, %v", i, len(messages), len(m), tell, err)
			}
			got = append(got, tell.Rules...)
		}
		if !reflect.DeepEqual(got, rules) {
			t.Errorf("of %d rules %d are read, in %d messages", n, len(got), len(messages))
		}
	}
}

func TestReadTellRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		is      error
	}{
		"no JSON":        {"x", ErrFrame},
		"nothing":        {"", ErrFrame},
		"no incarnation": {`{"seq":1}`, ErrFrame},
		"no seq":         {`{"incarnation":1}`, ErrFrame},
		"no namespace":   {`{"incarnation":1,"seq":1,"rules":[{"rule":"a"}]}`, ErrFrame},
		"a long name":    {`{"incarnation":1,"seq":1,"rules":[{"namespace":"a","rule":"` + strings.Repeat("a", 256) + `"}]}`, ErrFrame},
		"below zero":     {`{"incarnation":1,"seq":1,"rules":[{"namespace":"a","decided":{"deny":-1}}]}`, ErrFrame},
		"too much":       {`{"incarnation":1,"seq":1,"rules":[{"namespace":"a","trials":[[0,0],[0,9007199254740993]]}]}`, ErrFrame},
		"too many rules": {`{"incarnation":1,"seq":1,"rules":[` + strings.Repeat("{},", 4096) + `{}]}`, ErrFrame},
		"too large":      {strings.Repeat(" ", MaxTell+1), ErrTooLarge},
	} {
		if tell, err := ReadTell([]byte(c.message)); !errors.Is(err, c.is) {
			t.Errorf("%s: ReadTell = %+v, %v, want %v", name, tell, err, c.is)
		}
	}
	if _, err := ReadTell([]byte(`{"incarnation":1,"seq":1,"new":{},"rules":[{"namespace":"a","newer":1}]}`)); err != nil {
		t.Errorf("what a later build adds is not passed over: %v", err)
	}
}
