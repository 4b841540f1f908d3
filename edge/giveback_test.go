package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// lentKinds are rates of all kinds that borrow and lend.
func lentKinds(most uint64, per time.Duration) map[string]limit.RateSpec {
	kinds := sliders(most)
	for name, rate := range kinds {
		rate.Per = per
		kinds[name] = rate
	}
	kinds["slots"] = inFlight(most, per)
	kinds["fixed"] = limit.RateSpec{Algorithm: "fixed_window", Limit: most, Per: per}
	kinds["first hit"] = limit.RateSpec{Algorithm: "fixed_window", Limit: most, Per: per, Align: "first_hit"}
	kinds["bucket"] = limit.RateSpec{Algorithm: "token_bucket", Capacity: most, Refill: limit.Flow{Units: most, Per: per}}
	return kinds
}

// fills has a pool admit all that it has room for by itself.
func fills(n *Node, now time.Time) (admitted int) {
	for range 50 {
		req := n.Rules().Only().NewRequest()
		if n.Check(now, req).Allowed {
			admitted++
		}
		req.Release()
	}
	return admitted
}

// What was admitted under a larger limit was lent by nobody, and gives nothing back to a parent.
func TestNothingIsGivenBackThatNobodyLent(t *testing.T) {
	kinds := lentKinds(20, time.Hour)
	delete(kinds, "bucket") // with its capacity changes how fast it drains
	kinds["day"] = limit.RateSpec{Algorithm: "fixed_window", Limit: 20, Per: 24 * time.Hour, Align: "Europe/Berlin"}
	for name, rate := range kinds {
		less := rate
		less.Limit = 4
		n := newNode(t, Config{}, poolOf(rate), borrower("child", rate))
		if got := through(n, start, "a", 10); got != 10 {
			t.Fatal(got)
		}
		if got := fills(n, start); got != 20 {
			t.Fatal(got)
		}
		n.SetRules(compile(t, poolOf(rate), borrower("child", less)))
		for range 10 {
			giveBackOne(n, start, "a")
		}
		if got := fills(n, start); got > 0 {
			t.Errorf("%s: a pool that is used up admits %d more", name, got)
		}
	}
}

func giveBackOne(n *Node, now time.Time, user string) {
	req := requestOf(n, user)
	n.GiveBack(now, req)
	req.Release()
}

// What a parent lent longer ago than its window lasts it has back already: it gets nothing of
// others for it, of whatever kind the two are.
func TestLoansThatLeftTheParentAreNotGivenBack(t *testing.T) {
	for childs, child := range lentKinds(10, time.Hour) {
		for pools, pool := range lentKinds(10, time.Minute) {
			name := fmt.Sprintf("%s of a %s pool", childs, pools)
			n := newNode(t, Config{}, poolOf(pool), borrower("child", child))
			if got := through(n, start, "a", 16); got != 16 {
				t.Fatalf("%s: %d admitted, want 10 and 6 that are borrowed", name, got)
			}
			later := start.Add(5 * time.Minute)
			if got := fills(n, later); got != 10 {
				t.Errorf("%s: %d of 10 admitted when the loans have left", name, got)
			}
			for range 6 {
				giveBackOne(n, later, "a")
			}
			if got := fills(n, later); got > 0 {
				t.Errorf("%s: a pool that is used up admits %d more", name, got)
			}
		}
	}
}

// Where classes have limits of their own, all that they borrowed is given back when all is,
// whoever leaves first.
func TestClassesLeaveNothingLent(t *testing.T) {
	kinds := lentKinds(10, time.Hour)
	delete(kinds, "bucket") // it drains meanwhile
	for name, rate := range kinds {
		child := borrower("child", rate)
		child.Classes = limit.ClassesSpec{From: "class", Order: []string{"low", "high"}, Reserve: map[string]float64{"high": 50}}
		n := newNode(t, Config{}, poolOf(rate), child)
		ask := func(class string, ask func(*limit.Request)) {
			req := requestOf(n, "a")
			defer req.Release()
			req.Set("class", class)
			ask(req)
		}
		rng, lent := rand.New(rand.NewPCG(1, 2)), 0
		for life := range 40 {
			var inside []string
			now := start.Add(time.Duration(life) * 3 * time.Hour)
			for range 16 {
				now = now.Add(time.Minute)
				class := []string{"low", "high"}[rng.IntN(2)]
				ask(class, func(req *limit.Request) {
					if n.Check(now, req).Allowed {
						inside = append(inside, class)
					}
				})
			}
			pool := fills(n, now)
			lent += 10 - pool
			for _, i := range rng.Perm(len(inside)) {
				ask(inside[i], func(req *limit.Request) { n.GiveBack(now, req) })
			}
			if again := fills(n, now); pool+again != 10 {
				t.Errorf("%s: all was given back, and the pool of 10 admits %d and %d", name, pool, again)
			}
		}
		if lent == 0 {
			t.Errorf("%s: nothing was lent", name)
		}
	}
}
