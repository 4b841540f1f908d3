package deferred

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/test/proc"
)

// kept has requests of keys end at their paces for a while, in a bucket for so many, and says
// how many of each are there then.
func kept(t *testing.T, places int, paces map[string]time.Duration, lasts time.Duration) map[string]int {
	t.Helper()
	var l lives
	ends, last := map[string][]time.Time{}, map[string]time.Time{}
	began := time.Unix(1000, 0)
	for now := began; now.Before(began.Add(lasts)); now = now.Add(10 * time.Second) {
		held := 0
		for key, of := range ends {
			ends[key] = slices.DeleteFunc(of, func(at time.Time) bool { return !at.After(now) })
			held += len(ends[key])
		}
		for key, every := range paces {
			for ; last[key].Add(every).Before(now); last[key] = last[key].Add(every) {
				if last[key].IsZero() {
					last[key] = now.Add(-every)
				}
				life := max(lifeLeast, l.next(key, float64(max(0, places-held)), DefaultKept, now))
				ends[key] = append(ends[key], now.Add(life))
				if held++; held > places {
					t.Fatalf("after %v %d are kept, in place of %d", now.Sub(began), held, places)
				}
			}
		}
	}
	is := map[string]int{}
	for key, of := range ends {
		is[key] = len(of)
	}
	return is
}

// However fast a key's requests end, others' find room, and those that end seldom are kept as
// long as ever.
func TestLivesLeaveRoom(t *testing.T) {
	t.Parallel()
	const places, day = 10_000, 24 * time.Hour
	is := kept(t, places, map[string]time.Duration{"busy": time.Second, "seldom": time.Hour}, 2*day)
	if is["busy"] < places/4 || is["busy"] > places/2 {
		t.Errorf("%d of the busy key's are kept, want about a third of %d", is["busy"], places)
	}
	if is["seldom"] < 46 {
		t.Errorf("%d of 48 are kept of the key whose requests come seldom", is["seldom"])
	}
	many := map[string]time.Duration{}
	for i := range 500 {
		many[fmt.Sprint(i)] = 10 * time.Minute
	}
	all := 0
	for _, n := range kept(t, places, many, day) {
		all += n
	}
	if all < places/3 {
		t.Errorf("%d of many keys' are kept, in place of %d", all, places)
	}
	if is := kept(t, places, map[string]time.Duration{"a": time.Hour}, 8*day); is["a"] < 165 || is["a"] > 169 {
		t.Errorf("%d are kept of a key's that has the bucket to itself, want those of a week", is["a"])
	}
}

func TestLivesAreBounded(t *testing.T) {
	var l lives
	now := time.Unix(1000, 0)
	for i := range 2 * mostPaces {
		if life := l.next(fmt.Sprint(i), 1e12, DefaultKept, now); life < DefaultKept {
			t.Fatalf("one is kept for %v though there is room", life)
		}
	}
	if n := len(l.of); n > mostPaces {
		t.Errorf("it is known of %d keys, want %d at the most", n, mostPaces)
	}
}

// A key whose requests come and are done without end leaves others room, which is told.
func TestOneKeyDoesNotFillTheBucket(t *testing.T) {
	j := newJet(t)
	var says strings.Builder
	q := j.queue(j.connect(), Config{Bytes: 100 << 10, Logger: slog.New(slog.NewTextHandler(&says, nil))})
	q.lifeLeast = time.Second
	stop := work(t, q, does(200))
	full := false
	for range 500 {
		err := q.Put(t.Context(), request("busy"))
		if full = errors.Is(err, ErrFull); full {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !full {
		t.Fatal("500 find room at once, want that they fill the bucket: this tests nothing")
	}
	proc.Until(t, 30*time.Second, func() error { // as it is: later on some is over again
		if used := testutil.ToFloat64(q.cfg.Metrics.statuses); used < .5 || used > 1 {
			return fmt.Errorf("the bucket is said to be used by %v", used)
		}
		return nil
	})
	for i := range 3 { // it goes on coming
		proc.Until(t, 30*time.Second, func() error { return q.Put(t.Context(), request("busy")) })
		proc.Until(t, 30*time.Second, func() error { return q.Put(t.Context(), request(fmt.Sprint(i))) })
	}
	stop()
	if n := testutil.ToFloat64(q.cfg.Metrics.shortened); n < 10 {
		t.Errorf("%v are counted as kept for a shorter time", n)
	}
	for _, want := range []string{"kept for a shorter time", "tenant=busy", "no more requests wait", "requests wait again"} {
		if !strings.Contains(says.String(), want) {
			t.Errorf("the log says %q, want %s", says.String(), want)
		}
	}
}
