package world

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Who comes seldom has to come once for rights to be there: a few are kept for him, while what is spent
// would count, up to an hour.
func TestWhoComesSeldomPasses(t *testing.T) {
	for _, c := range []struct{ per, every time.Duration }{{time.Hour, 5 * time.Minute}, {time.Hour, 25 * time.Minute}, {10 * time.Minute, 8 * time.Minute}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Seed = 5 }, limit.RateSpec{Name: "r", Limit: 1000, Per: c.per, Consistency: "strict"})
			w.Advance(start.Add(30*time.Second + c.per + c.per/10)) // the log grants
			if denied := denials(w, w.Edges()[:1], 8, c.every); denied > 1 {
				t.Errorf("%d of 8 requests, one in %v, were denied, want the first alone", denied, c.every)
			}
		})
	}
}

// What is kept for who comes seldom, others have as soon as they need it.
func TestWhatIsKeptIsThereForOthers(t *testing.T) {
	for _, all := range []uint64{8, 64, 1000} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			w := wideOf(t, 1, 4, func(cfg *Config) { cfg.Seed = 5 }, limit.RateSpec{Name: "r", Limit: all, Per: time.Hour, Consistency: "strict"})
			w.Advance(start.Add(30*time.Second + 66*time.Minute)) // the log grants
			edges := append([]string{}, w.Edges()...)
			denials(w, edges[:3], 1, time.Second)
			w.Advance(w.Now().Add(10 * time.Minute))
			times := int(all) * 3 / 2
			if admitted := times - denials(w, edges[3:], times, 500*time.Millisecond); admitted != int(all) {
				t.Errorf("of a limit of %d an edge admitted %d, want all: three others keep rights that they do not use", all, admitted)
			}
		})
	}
}

// Who comes once, and means ill or not, keeps nobody out: of so many as the budget has a quarter for a few
// rights are kept, and no more.
func TestWhoComesOnceKeepsNobodyOut(t *testing.T) {
	const flow, minutes = 5, 25 // new users a second
	w := wideOf(t, 1, 2, func(cfg *Config) { cfg.Seed, cfg.Lanes, cfg.Budget = 9, 8, 20_000 }, limit.RateSpec{Name: "r", Limit: 1000, Per: time.Hour, Consistency: "strict"})
	w.Advance(start.Add(30*time.Second + 66*time.Minute)) // the log grants
	e, denied := w.Edges()[0], 0
	for sec := range minutes * 60 {
		for i := range flow {
			check(w, e, fmt.Sprint("u", sec*flow+i))
		}
		w.Advance(w.Now().Add(time.Second))
		if again := fmt.Sprint("u", sec*flow); sec > (minutes-5)*60 && sec%10 == 0 && !check(w, e, again).Allowed { // a second later
			denied++
		}
	}
	if denied > 0 {
		t.Errorf("of the last minutes' users %d were denied at their second request", denied)
	}
}
