package edge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// An edge without rights admits nothing of a strict limit, whatever its rates are: what
// may wait for room was admitted without any, up to the limit and on top of that.
func TestWithoutRightsNothingPasses(t *testing.T) {
	flow := limit.Flow{Units: 1, Per: time.Second}
	for name, spec := range map[string]limit.RateSpec{
		"window":   {Limit: 10, Per: time.Minute},
		"fixed":    {Limit: 10, Per: time.Minute, Algorithm: "fixed_window"},
		"token":    {Algorithm: "token_bucket", Capacity: 10, Refill: flow},
		"leaky":    {Algorithm: "leaky_bucket", Capacity: 10, Outflow: flow},
		"in time":  {Algorithm: "token_bucket", Capacity: 10, Refill: flow},
		"in use":   {Algorithm: "concurrency", Limit: 10, Lease: time.Minute},
		"calendar": {Limit: 10, Period: "day", Align: "utc"},
	} {
		t.Run(name, func(t *testing.T) {
			spec.Consistency = "strict"
			n := newNode(t, Config{}, perUser(spec))
			if name == "in time" { // the compiler refuses it, and this is what for
				n.Rules().Rules()[0].MaxDelay = time.Minute
			}
			for i := range 15 {
				if d := check(n, start, "u"); d.Allowed || !d.Basis.Short {
					t.Fatalf("request %d: %+v, want a denial for lack of rights", i, d)
				}
			}
		})
	}
}

// rightsOf are those of the user u.
func rightsOf(n *Node) *rights {
	return n.shard(keyOf(n, "u")).find(keyOf(n, "u")).block.share.rights
}

// holding is a node that was granted 5 rights of the user u in answer to a claim that left
// at began, by its clock. The answer came a second later.
func holding(t *testing.T) (n *Node, rt *rights, began time.Duration) {
	t.Helper()
	n = waitingNode(t, func(r *limit.RuleSpec) { r.Rates[0].StrictWait = 0 })
	check(n, time.Now(), "u")
	rt, began = rightsOf(n), n.cluster.escrow.boot()
	claimed := n.Claims(time.Now())
	if len(claimed) != 1 {
		t.Fatalf("%d frames of claims, want 1", len(claimed))
	}
	time.Sleep(time.Second) // virtual
	hearGrants(t, n, grantOf(n, deltasync.Grants{Echo: int64(began), Log: 2}, deltasync.Grant{Granted: 5, Target: 5}))
	if got := rt.held(n.cluster.escrow.boot()); got != 5 {
		t.Fatalf("%d rights are held, want the 5 that were granted", got)
	}
	return n, rt, began
}

// grantOf is a frame that has a grant for the user u.
func grantOf(n *Node, f deltasync.Grants, g deltasync.Grant) *deltasync.Grants {
	f.Region, f.Status, f.Lease = "eu", deltasync.StatusOK, deltasync.DefaultLease
	if g.Key = keyOf(n, "u"); g.Holder == 0 {
		g.Holder = rightsOf(n).holder
	}
	f.Grants = []deltasync.Grant{g}
	return &f
}

// Rights end a lease after the claim left that they were granted by, and not after the
// answer came: from then on others may have them.
func TestRightsEndWithTheirLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, rt, began := holding(t)
		lease := deltasync.DefaultLease
		time.Sleep(lease - time.Second - 1)
		if got := rt.held(n.cluster.escrow.boot()); got != 5 {
			t.Errorf("%d rights are held at the end of the lease, want 5", got)
		}
		if d := check(n, time.Now(), "u"); !d.Allowed {
			t.Errorf("%+v at the end of the lease, want it to pass", d)
		}
		time.Sleep(1)
		if got := rt.held(began + lease); got != 0 {
			t.Errorf("%d rights are held when the lease is over, want none", got)
		}
		if d := check(n, time.Now(), "u"); d.Allowed || !d.Basis.Short {
			t.Errorf("%+v when the lease is over, want a denial for lack of rights", d)
		}
	})
}

// A grant that comes when a lease is over that began with the claim, or with what the
// holder said last, is none: somebody else may have the rights. So is one that answers
// what was not said yet. One in time holds from when the claim left, and ends no lease
// that goes on for longer; one that nobody asked for brings rights, and no lease.
func TestGrantsAge(t *testing.T) {
	const lease = deltasync.DefaultLease
	for name, c := range map[string]struct {
		asked       bool
		said, comes time.Duration // after the claim of before left
		granted     uint64
		want        uint64        // granted
		until       time.Duration // likewise
	}{
		"an answer in time":          {true, 10 * time.Second, 25*time.Second - 1, 8, 8, 25 * time.Second},
		"an answer a lease later":    {true, 10 * time.Second, 25 * time.Second, 8, 5, lease},
		"an answer from the future":  {true, 10*time.Second + 1, 10 * time.Second, 8, 5, lease},
		"an answer to what is first": {true, 10 * time.Second, 10 * time.Second, 8, 8, 25 * time.Second},
		"an answer of before":        {true, -time.Second, 2 * time.Second, 3, 5, lease},
		"a push in time":             {false, 0, lease - 1, 8, 8, lease},
		"a push a lease later":       {false, 0, lease, 8, 5, lease},
		"a push from the future":     {false, 10*time.Second + 1, 10 * time.Second, 8, 5, lease},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, rt, began := holding(t)
				time.Sleep(c.comes - time.Second)
				f, g := deltasync.Grants{Log: 2}, deltasync.Grant{Granted: c.granted, Target: c.granted}
				if f.Echo = int64(began + c.said); !c.asked {
					f.Echo, g.Echo = 0, f.Echo
				}
				hearGrants(t, n, grantOf(n, f, g))
				if rt.granted != c.want || rt.until != began+c.until {
					t.Errorf("%d were granted, until %v, want %d, until %v", rt.granted, rt.until-began, c.want, c.until)
				}
			})
		})
	}
}

// Where the authority's log was lost, what is held is held on while its lease lasts, which
// the authority hears of, and waits for. What was held by a lease that is over is void: the
// log that was lost may have had it that others were granted it since. So is what the
// authority says it knows nothing of. Whoever is void begins a life of which nothing was
// granted, or returned, and claims anew.
func TestWhatALostLogVoids(t *testing.T) {
	const lease = deltasync.DefaultLease
	for name, c := range map[string]struct {
		comes time.Duration // after the claim left
		log   uint64
		flags deltasync.GrantFlags
		void  bool
	}{
		"the same log, the lease goes on": {10 * time.Second, 2, 0, false},
		"the same log, the lease is over": {lease, 2, 0, false},
		"another log, the lease goes on":  {lease - 1, 1, 0, false},
		"another log, the lease is over":  {lease, 1, 0, true},
		"unknown, the lease goes on":      {10 * time.Second, 1, deltasync.GrantVoid, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, rt, began := holding(t)
				s := n.shard(keyOf(n, "u"))
				s.returns(s.find(keyOf(n, "u")), 3, time.Now().UnixNano())
				time.Sleep(c.comes - time.Second)
				n.Claims(time.Now())
				life, boot := rt.holder, began+c.comes
				hearGrants(t, n, grantOf(n, deltasync.Grants{Echo: int64(boot), Log: c.log}, deltasync.Grant{Granted: 5, Target: 5, Flags: c.flags}))
				if !c.void {
					if rt.holder != life || rt.held(boot) != 3 || rt.until != boot+lease || rt.log != c.log {
						t.Errorf("%+v, want the same holder with 3 rights for a lease, by log %d", rt, c.log)
					}
					return
				}
				if rt.holder == life || rt.held(boot) != 0 {
					t.Fatalf("holder %x has %d rights, was %x; want another without any", rt.holder, rt.held(boot), life)
				}
				next := rt.holder
				hearGrants(t, n, grantOf(n, deltasync.Grants{Echo: int64(boot), Log: c.log}, deltasync.Grant{Holder: life, Granted: 5, Target: 5}))
				hearGrants(t, n, grantOf(n, deltasync.Grants{Log: c.log}, deltasync.Grant{Granted: 4, Target: 4, Echo: int64(boot)}))
				if got := rt.held(boot); got != 0 {
					t.Errorf("%d rights are held by what the life before was told, or by a push that came before any answer; want none", got)
				}
				time.Sleep(n.cfg.Interval)
				answerClaims(t, n, func(c deltasync.Claim) (uint64, deltasync.GrantFlags) {
					if c.Holder != next || c.Returned != 0 {
						t.Errorf("the next claim is %+v, want holder %x that returned nothing", c, next)
					}
					return 4, 0
				})
				if got := rt.held(n.cluster.escrow.boot()); got != 4 {
					t.Errorf("%d rights are held after an answer, want 4", got)
				}
			})
		})
	}
}

// Rights that are held stay where the next request finds them when nothing else is left of
// their counter, until they are returned. A sweep that forgot them would leave them nobody's
// until the lease is over.
func TestRightsAreReturnedBeforeTheyAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := waitingNode(t, func(r *limit.RuleSpec) { r.Rates[0].Per, r.Rates[0].StrictWait = time.Second, 0 })
		held := func() uint64 { return n.RightsOf(n.Rules().Rules()[0].Rates[0].Generation).Held }
		check(n, time.Now(), "u")
		answerClaims(t, n, grants(5, 0))
		if d := check(n, time.Now(), "u"); !d.Allowed || held() != 5 {
			t.Fatalf("%+v with %d rights, want it to pass with 5", d, held())
		}
		flushAll(t, n, time.Now())
		var returned uint64
		// pass lets time go by in which nobody asks for anything.
		pass := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				n.Tick(time.Now())
				answerClaims(t, n, func(c deltasync.Claim) (uint64, deltasync.GrantFlags) {
					returned = c.Returned
					return 5, 0
				})
			}
		}
		pass(9 * time.Second)
		if held() != 5 || returned != 0 {
			t.Errorf("9 s later %d rights are held and %d were returned, want all 5 held", held(), returned)
		}
		if pass(11 * time.Second); returned != 5 || n.Keys() != 0 {
			t.Errorf("20 s later %d rights were returned and %d keys are live, want 5 and none", returned, n.Keys())
		}
	})
}
