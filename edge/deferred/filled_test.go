package deferred

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
)

// A queue that was full is taken to be for a second; of how many that is known is bounded.
func TestFilledForASecond(t *testing.T) {
	var f filled
	at := time.Unix(1000, 0)
	f.was("a", at)
	for after, want := range map[time.Duration]bool{0: true, fullWait - 1: true} {
		if got := f.is("a", at.Add(after)); got != want {
			t.Errorf("after %v: %v, want %v", after, got, want)
		}
	}
	if f.is("b", at) || f.is("a", at.Add(fullWait)) {
		t.Error("another's is full, or one is for longer than a second")
	}
	for i := range 3 * mostFull {
		f.was(fmt.Sprint(i), at)
	}
	if n := len(f.until); n > mostFull || !f.is(fmt.Sprint(3*mostFull-1), at) {
		t.Errorf("%d are known, want at most %d, and the last", n, mostFull)
	}
}

// However long the keys are that clients choose, what is known of them is short, and each's own.
func TestLongKeysTakeLittle(t *testing.T) {
	long, at := strings.Repeat("x", 30<<10), time.Unix(1000, 0)
	node, err := edge.Local(limit.RuleSpec{Name: "all", Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 1, Per: 24 * time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	var f filled
	var l lives
	limits := map[string]bool{}
	for _, user := range []string{long + "1", long + "2", long + "1"} {
		f.was(user, at)
		l.next(user, 1, time.Hour, at)
		req := node.Rules().Only().NewRequest()
		req.Set("user", user)
		node.Check(at, req)
		d := node.Check(at, req)
		limits[limitOf(req, &d)] = true
	}
	for of, names := range map[string][]string{"that are full": slices.Collect(maps.Keys(f.until)), "whose pace is known": slices.Collect(maps.Keys(l.of)), "whose limit has no room": slices.Collect(maps.Keys(limits))} {
		if len(names) != 2 || len(names[0]) > 64 || len(names[1]) > 64 {
			t.Errorf("of those %s there are %d, with %d bytes, want two with few", of, len(names), len(strings.Join(names, "")))
		}
	}
	if !f.is(long+"2", at) || f.is(long+"3", at) {
		t.Error("one is taken for another")
	}
}
