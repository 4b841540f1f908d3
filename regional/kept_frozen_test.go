package regional

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What regions keep for edges that fell silent is beside their parts of what is left, also
// when they fall silent: all together have the limit once.
func TestHadBesideWhatIsKept(t *testing.T) {
	for _, tt := range []struct{ own, us, ap, frozen float64 }{{0, 0, 0, 0}, {0, 400, 0, 0}, {100, 400, 200, 0}, {0, 400, 100, .25}, {0, 1000, 0, 0}} {
		f := newSharers(t, second, "us", "ap", "sa")
		f.lasts(time.Second, map[uint64]float32{1: 100})
		q := f.c.contest
		q.regions[0] = regionDemand{Demand: deltasync.Demand{Mid: 300, Kept: float32(tt.us / 4), KeptSpent: float32(tt.us * 3 / 4)}, at: f.now, first: 1}
		q.regions[1] = regionDemand{Demand: deltasync.Demand{Mid: 50, Kept: float32(tt.ap)}, at: f.now, first: 1}
		q.regions[2].frozen = tt.frozen
		q.telling = kept{tt.own * .7, tt.own * .3, f.now}
		f.now += int64(time.Second)
		f.noteWeights(f.c, f.now)
		f.links.waiting[0].Store(f.now + int64(10*time.Second))
		f.spoken.heard(0, f.now)
		least, rest := f.least(f.c), 1-tt.frozen
		all := q.weight + 350 + 3*least
		if tt.frozen == 0 {
			all += least
		}
		kept := (tt.own + tt.us + tt.ap) / 1000
		want := (rest-kept)*(300+least)/all + tt.us/1000
		if got, _ := f.had(f.c, 0, f.now); math.Abs(got-want) > .002 {
			t.Errorf("%+v: %v, want %v", tt, got, want)
		}
	}
}
