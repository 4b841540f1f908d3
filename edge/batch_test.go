package edge

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// A batch decides as its requests would one after the other.
func TestBatchIsCheckInARow(t *testing.T) {
	rules := []limit.RuleSpec{
		{Name: "one", Match: limit.MatchSpec{Path: []string{"/one"}}, Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}},
		{Name: "two", Match: limit.MatchSpec{Path: []string{"/two"}}, Key: []string{"user"}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}, {Limit: 7, Per: time.Hour}}},
		{Name: "shut", Match: limit.MatchSpec{Path: []string{"/shut"}}, Deny: true},
	}
	single, batched := newNode(t, Config{}, rules...), newNode(t, Config{}, rules...)
	rnd := rand.New(rand.NewPCG(1, 2))
	now := start
	denied := 0
	for range 200 {
		now = now.Add(time.Duration(rnd.IntN(2000)) * time.Millisecond)
		var reqs, twins []*limit.Request
		for range rnd.IntN(3 * batch) {
			path, user := []string{"/one", "/two", "/shut", "/none"}[rnd.IntN(4)], ""
			if rnd.IntN(10) > 0 {
				user = fmt.Sprint("u", rnd.IntN(20))
			}
			peek := rnd.IntN(10) == 0
			for n, list := range map[*Node]*[]*limit.Request{single: &twins, batched: &reqs} {
				req := n.Rules().Only().NewRequest()
				req.Set("path", path)
				req.Set("user", user)
				req.Peek = peek
				*list = append(*list, req)
			}
		}
		got := batched.CheckBatch(now, reqs, nil)
		if len(got) != len(reqs) {
			t.Fatalf("%d decisions on %d requests", len(got), len(reqs))
		}
		for i, req := range twins {
			want := single.Check(now, req)
			if !want.Allowed {
				denied++
			}
			if got[i].Allowed != want.Allowed || got[i].Remaining != want.Remaining || got[i].RetryAfter != want.RetryAfter || got[i].Basis != want.Basis {
				t.Fatalf("request %d of %d: %+v in a batch, %+v alone", i, len(twins), got[i], want)
			}
		}
	}
	if denied < 100 {
		t.Fatalf("%d denied: the traffic tests little", denied)
	}
}

// Batches are decided while the ledger grows under them.
func TestBatchWhileTheLedgerGrows(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1, Per: time.Hour}))
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { // waited for below
			reqs := make([]*limit.Request, 40)
			for i := range reqs {
				reqs[i] = n.Rules().Only().NewRequest()
			}
			var out []limit.Decision
			for round := range 100 {
				for i, req := range reqs {
					req.Reset()
					req.Set("user", fmt.Sprint(w, "-", round, "-", i))
				}
				out = n.CheckBatch(start, reqs, out[:0])
				for i := range out {
					if !out[i].Allowed {
						t.Errorf("the first request of user %d-%d-%d was denied", w, round, i)
					}
				}
			}
		})
	}
	workers.Wait()
	if got := n.Keys(); got != 4*100*40 {
		t.Errorf("%d keys, want %d", got, 4*100*40)
	}
}

func TestBatchAllocatesNothing(t *testing.T) {
	n := newNode(t, Config{}, perUser(limit.RateSpec{Limit: 1 << 40, Per: time.Hour}))
	user, _ := n.Rules().Only().Slot("user")
	reqs := make([]*limit.Request, 64)
	for i := range reqs {
		reqs[i] = n.Rules().Only().NewRequest()
		reqs[i].SetSlot(user, fmt.Sprint("u", i))
	}
	out := make([]limit.Decision, 0, len(reqs))
	if got := testing.AllocsPerRun(100, func() { out = n.CheckBatch(start, reqs, out[:0]) }); got != 0 {
		t.Errorf("a batch allocates %v times", got)
	}
}
