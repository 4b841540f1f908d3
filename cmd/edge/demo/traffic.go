package demo

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/cmd/edge/demo/accesslog"
)

// source is requests without end.
type source interface{ Next() accesslog.Request }

// roaming is the part of requests that come in at another than the client's own
// region: travellers, and resolvers that are not where their users are.
const roaming = 0.1

// maxBehind is how much of the past is made up for after a stall: a burst of
// all that was missed would say nothing about the limiter.
const maxBehind = 250 * time.Millisecond

// traffic sends a source's requests to the edges at a fixed rate.
type traffic struct {
	source  source
	regions []*region
	router  router
	rate    int
	rnd     *rand.Rand // who roams, and where to
	turns   []int      // of the edges of each region: they take turns
	header  map[string][]string
}

func newTraffic(src source, regions []*region, rate int) *traffic {
	return &traffic{
		source: src, regions: regions, router: newRouter(len(regions)), rate: rate,
		rnd: rand.New(rand.NewPCG(1, 1)), turns: make([]int, len(regions)),
		header: map[string][]string{"Referer": {""}, "User-Agent": {""}},
	}
}

// run sends requests until ctx ends.
func (t *traffic) run(ctx context.Context) error {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	each := time.Second / time.Duration(t.rate)
	due := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if now.Sub(due) > maxBehind {
				due = now.Add(-maxBehind)
			}
			for ; !due.After(now); due = due.Add(each) {
				t.send()
			}
		}
	}
}

// send has one edge decide about the next request.
func (t *traffic) send() {
	r := t.source.Next()
	i := t.regionOf(r.Client)
	edges := t.regions[i].edges
	t.turns[i] = (t.turns[i] + 1) % len(edges)
	s := edges[t.turns[i]]

	t.header["Referer"][0], t.header["User-Agent"][0] = r.Referer, r.Agent
	req := s.namespace().NewRequest()
	defer req.Release()
	req.SetHTTP(r.Method, r.Path, "demo.example", r.Client, t.header)
	s.Check(time.Now(), req)
}

// regionOf is where the client's next request comes in.
func (t *traffic) regionOf(client string) int {
	home := t.router.home(client)
	if len(t.regions) == 1 || t.rnd.Float64() >= roaming {
		return home
	}
	return (home + 1 + t.rnd.IntN(len(t.regions)-1)) % len(t.regions)
}
