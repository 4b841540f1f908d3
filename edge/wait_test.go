package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// waitingNode is a node with a strict limit of 10 a minute that is waited for.
func waitingNode(t testing.TB, change func(*limit.RuleSpec)) *Node {
	t.Helper()
	rule := perUser(limit.RateSpec{Limit: 10, Per: time.Minute, Consistency: "strict", StrictWait: 250 * time.Millisecond})
	if change != nil {
		change(&rule)
	}
	began := time.Now()
	return newNode(t, Config{Boot: func() time.Duration { return time.Hour + time.Since(began) }}, rule)
}

// asked is what becomes of a request that waits.
type asked struct {
	d    limit.Decision
	took time.Duration
}

func askWait(ctx context.Context, n *Node, user string) <-chan asked {
	out := make(chan asked, 1)
	go func() { // ends with the wait, which is bounded
		req := n.Rules().Only().NewRequest()
		defer req.Release()
		req.Set("user", user)
		began := time.Now()
		d := n.CheckWait(ctx, began, req)
		out <- asked{d, time.Since(began)}
	}()
	return out
}

// answerClaims has an authority answer all that the node claims now; it says how many
// claims there were.
func answerClaims(t testing.TB, n *Node, grant func(c deltasync.Claim) (granted uint64, flags deltasync.GrantFlags)) (claims int) {
	t.Helper()
	for _, out := range n.Claims(time.Now()) {
		var c deltasync.Claims
		if err := c.UnmarshalBinary(out.Payload); err != nil {
			t.Fatal(err)
		}
		g := deltasync.Grants{Region: "eu", Lane: c.Lane, Status: deltasync.StatusOK, Echo: c.SentAt, Lease: deltasync.DefaultLease, Log: 1}
		for _, k := range c.Claims {
			granted, flags := grant(k)
			g.Grants = append(g.Grants, deltasync.Grant{Key: k.Key, Holder: k.Holder, Granted: granted, Target: granted, Flags: flags})
			claims++
		}
		hearGrants(t, n, &g)
	}
	return claims
}

func hearGrants(t testing.TB, n *Node, g *deltasync.Grants) {
	t.Helper()
	b, err := g.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.ReceiveGrants(time.Now(), b); err != nil {
		t.Fatal(err)
	}
}

func grants(granted uint64, flags deltasync.GrantFlags) func(deltasync.Claim) (uint64, deltasync.GrantFlags) {
	return func(deltasync.Claim) (uint64, deltasync.GrantFlags) { return granted, flags }
}

// later is the outcome of a request that must be there by now.
func later(t testing.TB, ch <-chan asked) asked {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-ch:
		return a
	default:
		t.Fatal("the request still waits")
		return asked{}
	}
}

func idle(t testing.TB, n *Node) {
	t.Helper()
	if w := n.cluster.escrow.queue.waits(); w != 0 || len(n.cluster.escrow.queue.by) != 0 {
		t.Errorf("%d requests wait, of %d keys, want none", w, len(n.cluster.escrow.queue.by))
	}
}

// A request that meets an edge without rights passes as soon as the first come, and is
// charged once; nothing but grants wakes it.
func TestWaitEndsWithTheFirstRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, nil)
		first, second := askWait(t.Context(), n, "u"), askWait(t.Context(), n, "u")
		synctest.Wait()
		time.Sleep(70 * time.Millisecond)
		answerClaims(t, n, func(c deltasync.Claim) (uint64, deltasync.GrantFlags) {
			if c.Want != 2 {
				t.Errorf("the claim wants %d, want one for each that waits", c.Want)
			}
			return 2, 0
		})
		for _, ch := range []<-chan asked{first, second} {
			if a := later(t, ch); !a.d.Allowed || a.took != 70*time.Millisecond {
				t.Errorf("%+v, want it to pass after 70ms", a)
			}
		}
		if got := n.RightsOf(n.Rules().Rules()[0].Rates[0].Generation); got != (Rights{Held: 2, Spent: 2}) {
			t.Errorf("rights %+v, want both spent, once each", got)
		}
		idle(t, n)
	})
}

// Whoever waits in vain is denied when the time is up. While the authority is silent
// the next ones do not wait for it, too.
func TestWaitIsOverInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, nil)
		ch := askWait(t.Context(), n, "u")
		synctest.Wait()
		if claims := n.Claims(time.Now()); len(claims) != 1 {
			t.Fatalf("%d frames of claims, want 1", len(claims))
		}
		time.Sleep(250 * time.Millisecond)
		if a := later(t, ch); a.d.Allowed || a.took != 250*time.Millisecond || a.d.RetryAfter == 0 {
			t.Errorf("%+v, want a denial after 250ms, and when to come back", a)
		}
		if a := later(t, askWait(t.Context(), n, "u")); a.d.Allowed || a.took != 0 {
			t.Errorf("while nobody answers: %+v, want a denial at once", a)
		}
		answerClaims(t, n, grants(5, 0))
		if a := later(t, askWait(t.Context(), n, "u")); !a.d.Allowed || a.took != 0 {
			t.Errorf("after an answer: %+v, want it to pass at once", a)
		}
		idle(t, n)
	})
}

// Nobody waits for rights that are not there: not who waits when the authority says so,
// nor who comes in the second for which that holds.
func TestNobodyWaitsForALimitThatIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, nil)
		ch := askWait(t.Context(), n, "u")
		synctest.Wait()
		time.Sleep(20 * time.Millisecond)
		answerClaims(t, n, grants(0, 0))
		if a := later(t, ch); a.d.Allowed || a.took != 20*time.Millisecond {
			t.Errorf("%+v, want a denial with the answer, after 20ms", a)
		}
		for range 3 {
			time.Sleep(200 * time.Millisecond)
			if a := later(t, askWait(t.Context(), n, "u")); a.d.Allowed || a.took != 0 || a.d.Basis.Await != 0 {
				t.Errorf("%+v, want a denial at once", a)
			}
		}
		// All that the limit has is here, and spent.
		answerClaims(t, n, grants(10, 0))
		for range 10 {
			check(n, time.Now(), "u")
		}
		if a := later(t, askWait(t.Context(), n, "u")); a.d.Allowed || a.took != 0 {
			t.Errorf("with all rights spent: %+v, want a denial at once", a)
		}
		idle(t, n)
	})
}

// Where the authority seeks some, the wait goes on until they are told of, unasked.
func TestWaitGoesOnWhileRightsAreSought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, nil)
		ch := askWait(t.Context(), n, "u")
		synctest.Wait()
		var of deltasync.Claim
		echo := int64(n.cluster.escrow.boot())
		answerClaims(t, n, func(c deltasync.Claim) (uint64, deltasync.GrantFlags) {
			of = c
			return 0, deltasync.GrantSought
		})
		synctest.Wait()
		time.Sleep(150 * time.Millisecond)
		hearGrants(t, n, &deltasync.Grants{Region: "eu", Status: deltasync.StatusOK, Lease: deltasync.DefaultLease, Log: 1,
			Grants: []deltasync.Grant{{Key: of.Key, Holder: of.Holder, Granted: 1, Target: 1, Echo: echo}}})
		if a := later(t, ch); !a.d.Allowed || a.took != 150*time.Millisecond {
			t.Errorf("%+v, want it to pass after 150ms", a)
		}
		idle(t, n)
	})
}

// Who is gone is charged nothing, and leaves no trace.
func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ch := askWait(ctx, n, "u")
		synctest.Wait()
		cancel()
		if a := later(t, ch); a.d.Allowed || a.took != 0 {
			t.Errorf("%+v, want a denial at once", a)
		}
		answerClaims(t, n, grants(10, 0))
		if got := n.RightsOf(n.Rules().Rules()[0].Rates[0].Generation); got.Spent != 0 {
			t.Errorf("%d rights are spent, want none", got.Spent)
		}
		idle(t, n)
	})
}

// A denial is charged once, though the request was decided several times.
func TestWaitIsChargedOnce(t *testing.T) {
	for name, change := range map[string]func(*limit.RuleSpec){
		"count_denied": func(r *limit.RuleSpec) { r.Rates[0].Algorithm, r.Rates[0].CountDenied = "sliding_log", true },
		"each":         func(r *limit.RuleSpec) { r.Charge = "each" },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := waitingNode(t, change)
				ch := askWait(t.Context(), n, "u")
				synctest.Wait()
				for range 3 {
					time.Sleep(60 * time.Millisecond)
					answerClaims(t, n, grants(0, deltasync.GrantSought))
					synctest.Wait()
				}
				time.Sleep(70 * time.Millisecond)
				if a := later(t, ch); a.d.Allowed || a.took != 250*time.Millisecond {
					t.Fatalf("%+v, want a denial after 250ms", a)
				}
				req := requestOf(n, "u")
				req.Peek = true
				if d := n.Check(time.Now(), req); d.Basis.Local != 1 {
					t.Errorf("%d are counted, want 1", d.Basis.Local)
				}
			})
		})
	}
}

// No more wait than there is room for; the rest are denied, as without strict_wait.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, nil)
		waits := make([]<-chan asked, mostWaiting)
		for i := range waits {
			waits[i] = askWait(t.Context(), n, "u")
		}
		synctest.Wait()
		if a := later(t, askWait(t.Context(), n, "v")); a.d.Allowed || a.took != 0 {
			t.Errorf("one more: %+v, want a denial at once", a)
		}
		if full := n.cluster.escrow.queue.full.Load(); full != 1 {
			t.Errorf("%d were full, want 1", full)
		}
		time.Sleep(250 * time.Millisecond)
		for _, ch := range waits {
			later(t, ch)
		}
		idle(t, n)
	})
}

// A rule without strict_wait denies at once, and a peek is told how things stand.
func TestWhoDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, func(r *limit.RuleSpec) { r.Rates[0].StrictWait = 0 })
		if a := later(t, askWait(t.Context(), n, "u")); a.d.Allowed || a.took != 0 || a.d.Basis.Await != 0 {
			t.Errorf("without strict_wait: %+v, want a denial at once", a)
		}
		n = waitingNode(t, nil)
		req := requestOf(n, "u")
		req.Peek = true
		if d, wait := n.CheckOrWait(time.Now(), req); d.Allowed || wait != nil || d.Basis.Await == 0 {
			t.Errorf("a peek: %+v, waits %v, want that there is something to wait for, and no wait", d, wait != nil)
		}
		// Another limit denies for good.
		n = waitingNode(t, func(r *limit.RuleSpec) {
			r.Rates = append(r.Rates, limit.RateSpec{Name: "none", Limit: 0, Per: time.Second, Consistency: "loose"})
		})
		if a := later(t, askWait(t.Context(), n, "u")); a.d.Allowed || a.took != 0 {
			t.Errorf("with another limit of nothing: %+v, want a denial at once", a)
		}
	})
}
