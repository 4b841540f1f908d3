package cli

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsentries"
)

// lately is a node that notes what it was last told.
type lately struct {
	list     []limit.Exception
	problems []limit.Problem
}

func (l *lately) SetExceptions(_ time.Time, list []limit.Exception) []limit.Problem {
	l.list = list
	slices.SortFunc(l.list, func(a, b limit.Exception) int { return strings.Compare(a.ID, b.ID) })
	return l.problems
}

// Exceptions come and go one by one, and the node has those that hold, all at once.
func TestApplyExceptions(t *testing.T) {
	var node lately
	var log bytes.Buffer
	apply := ApplyExceptions(&node, slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Now()
	grant := &limit.Exception{Rule: "api", Key: []string{"u"}, Kind: limit.KeyGrant, Amount: 5}
	reset := &limit.Exception{Rule: "api", Name: 7, Kind: limit.KeyReset, Amount: 5}
	entry := func(name string, e *limit.Exception, until time.Time) natsentries.Entry {
		return natsentries.Entry{Kind: limit.EntryException, Namespace: "shop", Name: name, At: now, Until: until, Body: e.Body()}
	}
	refused := apply([]natsentries.Entry{
		entry("a", grant, now.Add(time.Hour)), entry("b", reset, time.Time{}), entry("ended", grant, now.Add(-time.Second)),
		{Kind: limit.EntryException, Namespace: "shop", Name: "bad", At: now, Body: []byte(`{}`)},
	})
	if len(refused) != 1 || refused[3] == nil {
		t.Errorf("refused are %v, want the last alone", refused)
	}
	if len(node.list) != 2 || node.list[0].ID != "a" || node.list[0].Namespace != "shop" || node.list[0].Amount != 5 || !node.list[0].Since.Equal(now) || node.list[1].Name != 7 {
		t.Errorf("the node has %+v", node.list)
	}
	node.problems = []limit.Problem{{Path: "shop/b: rule", Code: "E331", Detail: "there is no rule", Hint: "one of: x"}}
	for range 2 {
		apply([]natsentries.Entry{{Kind: limit.EntryException, Namespace: "shop", Name: "a", At: now, Deleted: true}})
	}
	if len(node.list) != 1 || node.list[0].ID != "b" {
		t.Errorf("with one taken away the node has %+v", node.list)
	}
	if n := strings.Count(log.String(), "E331"); n != 1 {
		t.Errorf("what is wrong is told %d times, want once: %s", n, log.String())
	}
}

// Capacity is in force until it ends, or is taken away.
func TestApplyCapacity(t *testing.T) {
	node, err := edge.Local(limit.RuleSpec{Name: "api", Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	apply, now := ApplyCapacity(node), time.Now()
	entry := func(name, body string, until time.Duration) natsentries.Entry {
		return natsentries.Entry{Kind: limit.EntryCapacity, Name: name, At: now, Until: now.Add(until), Body: []byte(body)}
	}
	refused := apply([]natsentries.Entry{
		entry("api", string(limit.CapacityBody(0.25)), time.Minute), entry("gone", string(limit.CapacityBody(0.5)), -time.Second),
		entry("bad", `{"used":-1}`, time.Minute), entry("long", string(limit.CapacityBody(0.5)), 2*time.Hour),
	})
	if len(refused) != 2 || refused[2] == nil || refused[3] == nil {
		t.Errorf("refused are %v, want the last two", refused)
	}
	if used, ttl, ok := node.Capacity(now, "api"); !ok || used != 0.25 || ttl > time.Minute || ttl < 50*time.Second {
		t.Errorf("api is %v for %v, %v", used, ttl, ok)
	}
	if _, _, ok := node.Capacity(now, "gone"); ok {
		t.Error("what has ended is known")
	}
	apply([]natsentries.Entry{{Kind: limit.EntryCapacity, Name: "api", At: now, Deleted: true}})
	if _, _, ok := node.Capacity(now, "api"); ok {
		t.Error("what was taken away is known")
	}
}
