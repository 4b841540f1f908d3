package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/maypok86/otter/v2"
	"github.com/mennanov/limiters"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
)

// same is a worker for contestants that read the clock themselves.
func same(d decide) func(time.Time, time.Duration) decide {
	return func(time.Time, time.Duration) decide { return d }
}

// fill asks once for every key, so that rounds meet no new ones.
func fill(p population, d decide) {
	for _, key := range p.keys {
		d(key)
	}
}

// buildGoLimiter gives the tokens for a day: version 0.7.1 fills up by
// interval/tokens after each interval, which of an ample quota is one token, and
// would deny from the second interval on.
func buildGoLimiter(p population, _ time.Time) (*subject, error) {
	ctx := context.Background()
	store, err := memorystore.New(&memorystore.Config{Tokens: p.quota.limit, Interval: 24 * time.Hour})
	if err != nil {
		return nil, fmt.Errorf("go-limiter: %w", err)
	}
	d := func(key string) bool {
		_, _, _, ok, err := store.Take(ctx, key)
		return ok && err == nil
	}
	fill(p, d)
	return &subject{worker: same(d), close: func() { _ = store.Close(ctx) }}, nil // a store in memory closes without fail
}

func buildThrottled(p population, _ time.Time) (*subject, error) {
	ctx := context.Background()
	store, err := memstore.NewCtx(0) // no bound: a plain map, its faster form
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(p.quota.limit), p.quota.per),
		MaxBurst: int(p.quota.limit) - 1,
	})
	if err != nil {
		return nil, fmt.Errorf("throttled: %w", err)
	}
	limiter.SetMaxCASAttemptsLimit(1000) // ten are not enough for one hot key: it would give up with an error
	d := func(key string) bool {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}
	fill(p, d)
	return &subject{worker: same(d)}, nil
}

func buildUlule(p population, _ time.Time) (*subject, error) {
	ctx := context.Background()
	l := limiter.New(memory.NewStore(), limiter.Rate{Limit: int64(p.quota.limit), Period: p.quota.per})
	d := func(key string) bool {
		c, err := l.Get(ctx, key)
		return !c.Reached && err == nil
	}
	fill(p, d)
	return &subject{worker: same(d)}, nil
}

// perSecond is the quota as x/time/rate has it: a bucket that starts full.
func perSecond(q quota) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(q.limit)/q.per.Seconds()), int(q.limit))
}

// buildRateMap is what most tutorials show. The time is an argument, as it is
// for the edge: rate.AllowN takes it.
func buildRateMap(p population, origin time.Time) (*subject, error) {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	s := &subject{worker: func(now time.Time, step time.Duration) decide {
		h := &hand{now: now}
		return func(key string) bool {
			mu.Lock()
			l, ok := limiters[key]
			if !ok {
				l = perSecond(p.quota)
				limiters[key] = l
			}
			mu.Unlock()
			h.now = h.now.Add(step)
			return l.AllowN(h.now, 1)
		}
	}}
	fill(p, s.worker(origin, 0))
	return s, nil
}

func buildRateSyncMap(p population, origin time.Time) (*subject, error) {
	var limiters sync.Map
	s := &subject{worker: func(now time.Time, step time.Duration) decide {
		h := &hand{now: now}
		return func(key string) bool {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, perSecond(p.quota))
			}
			h.now = h.now.Add(step)
			return l.(*rate.Limiter).AllowN(h.now, 1)
		}
	}}
	fill(p, s.worker(origin, 0))
	return s, nil
}

func buildMennanov(p population, _ time.Time) (*subject, error) {
	ctx := context.Background()
	registry, clock, logger := limiters.NewRegistry(), limiters.NewSystemClock(), limiters.NewStdLogger()
	bucket := func() interface{} {
		return limiters.NewTokenBucket(int64(p.quota.limit), p.quota.per/time.Duration(p.quota.limit),
			limiters.NewLockNoop(), limiters.NewTokenBucketInMemory(), clock, logger)
	}
	d := func(key string) bool {
		b := registry.GetOrCreate(key, bucket, time.Hour, clock.Now()).(*limiters.TokenBucket)
		_, err := b.Limit(ctx)
		return !errors.Is(err, limiters.ErrLimitExhausted)
	}
	fill(p, d)
	return &subject{worker: same(d)}, nil
}

func buildRistretto(p population, _ time.Time) (*subject, error) {
	cache, err := ristretto.NewCache(&ristretto.Config[string, uint64]{
		NumCounters: int64(max(1000, 10*len(p.keys))),
		MaxCost:     int64(max(1000, 2*len(p.keys))),
		BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("ristretto: %w", err)
	}
	for _, key := range p.keys {
		for tries := 0; !cache.Set(key, 1, 1); tries++ { // dropped: its buffer is full
			if tries == 1000 {
				return nil, fmt.Errorf("ristretto: dropped %s a thousand times", key)
			}
			cache.Wait()
		}
	}
	cache.Wait()
	return &subject{
		worker: same(func(key string) bool { _, ok := cache.Get(key); return ok }),
		close:  cache.Close,
	}, nil
}

func buildOtter(p population, _ time.Time) (*subject, error) {
	cache, err := otter.New(&otter.Options[string, uint64]{MaximumSize: max(1000, 2*len(p.keys))})
	if err != nil {
		return nil, fmt.Errorf("otter: %w", err)
	}
	for _, key := range p.keys {
		cache.Set(key, 1)
	}
	return &subject{
		worker: same(func(key string) bool { _, ok := cache.GetIfPresent(key); return ok }),
		close:  func() { cache.StopAllGoroutines() },
	}, nil
}
