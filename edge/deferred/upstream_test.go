package deferred

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// What was kept for one upstream is sent to no other, also once it was revived: the edges of
// two sites share a region's queue. What nobody of its own does in time anybody reports, and
// what an older edge kept says no upstream, and is anybody's.
func TestUpstreamsGetTheirOwn(t *testing.T) {
	t.Parallel()
	j := newJet(t)
	shop := j.queue(j.connect(), Config{Upstream: "http://shop:80", Tries: 1})
	blog := j.queue(j.connect(), Config{Upstream: "http://blog:80", Tries: 1})
	old := j.queue(j.connect(), Config{})
	var fails atomic.Bool
	fails.Store(true)
	var sent [2]atomic.Int64
	to := func(i int, upstream string) Send {
		return func(_ context.Context, a *Attempt) Outcome {
			if a.Upstream != "" && a.Upstream != upstream {
				t.Errorf("what is for %s is sent to %s", a.Upstream, upstream)
			}
			if err := a.Begin(); err != nil {
				return Outcome{Began: true, Err: err}
			}
			sent[i].Add(1)
			if fails.Load() {
				return Outcome{Began: true, Status: 502}
			}
			return Outcome{Began: true, Status: 200}
		}
	}
	work(t, blog, to(1, "http://blog:80"))
	var ids []string
	for i := range 8 {
		ids = append(ids, put(t, shop, fmt.Sprint(i), time.Time{}))
	}
	late := put(t, shop, "late", time.Now().Add(2*time.Second))
	becomes(t, blog, late, Dead)
	if n := sent[1].Load(); n != 0 {
		t.Fatalf("%d requests of the shop's were sent to the blog", n)
	}
	stop := work(t, shop, to(0, "http://shop:80"))
	for _, id := range ids {
		becomes(t, shop, id, Dead) // at the first try
	}
	stop()
	fails.Store(false)
	again, err := blog.Revive(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	anybodys := put(t, old, "old", time.Time{})
	becomes(t, blog, anybodys, Done)
	work(t, shop, to(0, "http://shop:80"))
	becomes(t, shop, again, Done)
	proc.Until(t, time.Second, func() error {
		if n := sent[0].Load(); n != 9 {
			return fmt.Errorf("the shop was sent %d requests, want 9", n)
		}
		return nil
	})
}
