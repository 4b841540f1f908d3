package edge

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/alone"
)

// Where tenants of several paces, or requests with a limit of their own, fill one queue for
// an hour, nobody is told to wait for longer than a full one takes, or max_wait, nor is
// overtaken; and as much goes out as the rule's own pace lets.
func TestLinesOfSeveralPacesDoNotGrow(t *testing.T) {
	alone.Mark(t)
	type kind struct {
		plan string
		own  uint64
	}
	for _, maxWait := range []time.Duration{0, 15 * time.Second} {
		for _, pair := range [][2]kind{
			{{"gold", 0}, {"", 0}}, {{"", 0}, {"gold", 0}}, {{"", 0}, {"free", 0}}, {{"free", 0}, {"", 0}},
			{{"gold", 0}, {"free", 0}}, {{"", 400}, {"", 0}}, {{"", 0}, {"", 400}}, {{"", 5}, {"gold", 0}}, {{"gold", 0}, {"gold", 0}},
		} {
			t.Run(fmt.Sprint("max_wait=", maxWait, "/one=", pair[0], "/three=", pair[1]), func(t *testing.T) {
				w := newLineWorld(t, "edge", maxWait)
				w.load(time.Second)
				admitted := 0
				for range 3600 {
					for i, times := range []int{1, 3} {
						for range times {
							if p, ok := w.join(pair[i].plan, pair[i].own, 1); ok {
								w.told(p, fmt.Sprint(pair[i]))
								admitted++
							}
						}
					}
					w.came = w.came[max(0, len(w.came)-100):]
					w.now += time.Second
					w.n.Tick(w.clock())
				}
				if admitted < 3600 {
					t.Errorf("%d were admitted in an hour, of one a second", admitted)
				}
			})
		}
	}
}

// A queue that is full all the time, and forgotten again and again, lets out as much as ever,
// and has nobody wait for longer than a full one takes; where it is known by the filter
// alone, for a quarter more.
func TestFullQueueThatIsForgottenDoesNotDrift(t *testing.T) {
	alone.Mark(t)
	for _, scope := range []string{"edge", "global"} {
		for _, maxWait := range []time.Duration{0, 15 * time.Second} {
			for _, filtered := range []bool{false, true} {
				for _, every := range []int{1, 7} {
					t.Run(fmt.Sprintf("%s/max_wait=%v/filtered=%v/every=%ds", scope, maxWait, filtered, every), func(t *testing.T) {
						w := newLineWorld(t, scope, maxWait)
						most := 40 * time.Second
						if filtered {
							most += most / 4
							for i := range w.n.shards {
								w.n.shards[i].blocked = blocked{filter: filter{most: 16}}
							}
						}
						w.load(time.Second)
						w.now += 333 * time.Millisecond
						for range 45 {
							w.join("", 0, 1)
						}
						admitted := 0
						for second := range 3600 {
							w.now += time.Second
							w.n.Tick(w.clock())
							for range 3 {
								p, ok := w.join("", 0, 1)
								if !ok {
									continue
								}
								admitted++
								if p.turn > w.now+most || maxWait > 0 && p.turn > w.now+maxWait {
									t.Fatalf("after %d s told to wait for %v", second, p.turn-w.now)
								}
							}
							if second%3 == 0 {
								settleFrames(w.n, w.clock())
							}
							if second%every == 0 {
								forgetAll(w.n, w.clock())
							}
						}
						if admitted < 3590 {
							t.Errorf("%d were let out in an hour, of one a second", admitted)
						}
					})
				}
			}
		}
	}
}

// A queue that is forgotten while it is full, and then while it is not, has as much in it as
// before, also where nothing but what was held of it says so.
func TestQueueThatIsForgottenFullAndEmptier(t *testing.T) {
	for _, maxWait := range []time.Duration{0, 35 * time.Second} {
		for _, view := range []View{nil, mapView{}} {
			t.Run(fmt.Sprintf("max_wait=%v/view=%v", maxWait, view != nil), func(t *testing.T) {
				w := newLineWorld(t, "edge", maxWait)
				w.n = newNode(t, Config{View: view}, queueOf(""))
				w.load(time.Second)
				admitted := 0
				ask := func() {
					p, ok := w.join("", 0, 1)
					if !ok {
						return
					}
					if admitted++; p.turn > w.now+40*time.Second {
						t.Fatalf("at %v told to wait for %v", w.now, p.turn-w.now)
					}
				}
				pass := func(d time.Duration) {
					forgetAll(w.n, w.clock())
					w.now += d
					w.n.Tick(w.clock())
				}
				const rounds = 30
				for range rounds {
					for range 45 {
						ask()
					}
					pass(14 * time.Second)
					ask()
					pass(time.Second)
				}
				if most, least := 40+15*rounds, 13*rounds; admitted > most || admitted < least {
					t.Errorf("%d were let in in %d s, want %d to %d", admitted, 15*rounds, least, most)
				}
			})
		}
	}
}
