package deferred

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// paceTime is what a key's pace is a mean of.
	paceTime = 20 * time.Minute
	// mostPaces bounds the keys of which it is known; all are forgotten beyond it.
	mostPaces = 4096
	// lifeLeast is for how long it is told in any case what became of a request: for longer than
	// JetStream takes another of its id for the same.
	lifeLeast = duplicates + time.Minute
	// shortEvery is how often it is told that keys have less time than that.
	shortEvery = 10 * time.Minute
	// statusTakes is what a status takes of the bucket, with its subject and header.
	statusTakes = 720
)

// lives divides what room the bucket has among keys. What became of a key's requests is kept
// for no longer than in which they would fill, at that key's pace, half of what is free: so one
// that is busy leaves two thirds to others, and who comes seldom has as long as without it. Where
// all together would take more than three quarters of what is free, each has so much less. Each
// edge goes by what it has done itself: the more of them there are, the less is free.
type lives struct {
	mu  sync.Mutex // guards what follows
	all tempo      // of the places that keys would take, by their own paces alone, each for a second
	of  map[string]tempo
}

// tempo is how much there was of late, each weighing the less the longer it is past.
type tempo struct {
	n  float64
	at time.Time
}

func (p tempo) after(now time.Time) tempo {
	return tempo{p.n * math.Exp(-max(0, now.Sub(p.at).Seconds())/paceTime.Seconds()), now}
}

// next is for how long what became of one more is kept, most at the most, where there is room
// for so many.
func (l *lives) next(key string, room float64, most time.Duration, now time.Time) time.Duration {
	key = brief(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	own, known := l.of[key]
	if !known && len(l.of) >= mostPaces {
		l.forget(now)
	}
	if l.of == nil {
		l.of = map[string]tempo{}
	}
	own, l.all = own.after(now), l.all.after(now)
	own.n++
	l.of[key] = own
	life := min(most.Seconds(), room/2*paceTime.Seconds()/own.n)
	l.all.n += life
	if takes := l.all.n / paceTime.Seconds(); takes > room*3/4 {
		life *= room * 3 / 4 / takes
	}
	return time.Duration(life * float64(time.Second))
}

// forget makes room for another key: of those that come seldom, or else of all.
func (l *lives) forget(now time.Time) {
	for key, p := range l.of {
		if p.after(now).n < 1 {
			delete(l.of, key)
		}
	}
	if len(l.of) >= mostPaces {
		clear(l.of)
	}
}

// life is for how long it is known what became of a tenant's request that is over; 0: as
// long as the bucket keeps it, as servers before 2.11 know no other end.
func (q *Queue) life(ctx context.Context, tenant string) time.Duration {
	if !q.markers.Load() {
		return 0
	}
	_ = q.look(ctx) // else it goes by what was seen last
	noted, most := q.noted.Load(), q.bound.Load()/8*7
	if most == 0 { // it was never seen
		return q.cfg.Kept
	}
	now := q.cfg.Now()
	life := q.lives.next(tenant, float64(most-min(noted, most))/statusTakes, q.cfg.Kept, now)
	if life >= q.cfg.Kept {
		return q.cfg.Kept
	}
	life = max(life, q.lifeLeast).Truncate(time.Second)
	q.cfg.Metrics.shortened.Inc()
	if at := q.short.Load(); at <= now.UnixNano() && q.short.CompareAndSwap(at, now.Add(shortEvery).UnixNano()) {
		q.log.Warn("what became of deferred requests is kept for a shorter time, as it would not find room else",
			"tenant", tenant, "kept", life, "of", q.cfg.Kept, "bytes", noted, "max_bytes", q.bound.Load(),
			"hint", "a larger proxy.defer.max_bytes, applied by: "+q.cfg.Command)
	}
	return life
}

// look looks once a second how full the bucket is.
func (q *Queue) look(ctx context.Context) error {
	now, at := time.Now().UnixNano(), q.looks.Load()
	if at > now || !q.looks.CompareAndSwap(at, now+int64(lookEvery)) {
		return nil
	}
	ctx, cancel := q.bounded(ctx)
	defer cancel()
	status, err := q.statuses.Status(ctx)
	if err != nil {
		return q.unavailable("ask for "+q.bucket, err)
	}
	noted, bound := status.Bytes(), uint64(max(0, status.Config().MaxBytes))
	q.noted.Store(noted)
	q.bound.Store(bound)
	if bound == 0 {
		return nil
	}
	q.cfg.Metrics.statuses.Set(float64(noted) / float64(bound))
	if is := noted > bound/8*7; q.crammed.Swap(is) != is {
		if is {
			q.log.Warn("no more requests wait, as what became of others takes up its room", "bytes", noted, "max_bytes", bound,
				"hint", "a larger proxy.defer.max_bytes, applied by: "+q.cfg.Command)
		} else {
			q.log.Info("requests wait again", "bytes", noted, "max_bytes", bound)
		}
	}
	return nil
}
