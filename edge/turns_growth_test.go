package edge

import (
	"fmt"
	"testing"
	"time"
)

// Where tenants of several paces, or requests with a limit of their own, fill one queue for
// an hour, nobody is told to wait for longer than a full one takes, or max_wait, nor is
// overtaken; and as much goes out as the rule's own pace lets.
func TestLinesOfSeveralPacesDoNotGrow(t *testing.T) {
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
