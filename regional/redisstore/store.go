package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional"
)

//go:embed merge.lua
var mergeSource string

var mergeScript = redis.NewScript(mergeSource)

// Store is a regional.Store in Redis. Its parts are the tags of a cluster.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	prefix  string
	now     func() time.Time
	seen    sightings
}

var _ regional.Parted = (*Store)(nil)

// New returns a store. It connects when it is first used, so that an aggregator
// starts without its Redis.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{client: redis.NewUniversalClient(cfg.options()), prefix: cfg.Prefix, now: cfg.Now}
	s.cluster, _ = s.client.(*redis.ClusterClient)
	return s, nil
}

// Close implements regional.Store.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil {
		return failed("close", err)
	}
	return nil
}

// Merge implements regional.Store.
func (s *Store) Merge(ctx context.Context, batch []regional.Item) ([]regional.Item, error) {
	return s.exchange(ctx, "merge batch", batch, func(it *regional.Item) regional.Item { return *it })
}

// Load implements regional.Store.
func (s *Store) Load(ctx context.Context, keys []regional.Item) ([]regional.Item, error) {
	return s.exchange(ctx, "load keys", keys, func(it *regional.Item) regional.Item {
		return regional.Item{Key: it.Key, Width: it.Width, Slices: it.Slices, Floor: it.Floor}
	})
}

// A call of the script holds up the server for all others, about 10 µs a key;
// the calls of one pipeline have to be answered within the timeout.
const (
	maxCallKeys     = 64
	maxPipelineKeys = 1024
)

// exchange sends what asked says of each item and reads the answers. Items of
// one call stand in one slot: in a cluster that means one tag.
func (s *Store) exchange(ctx context.Context, verb string, batch []regional.Item, asked func(*regional.Item) regional.Item) ([]regional.Item, error) {
	for i := range batch {
		if err := batch[i].Check(); err != nil {
			return nil, failed(verb, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, failed(verb, err)
	}
	now := s.now() // places cells in groups
	out := make([]regional.Item, len(batch))
	nonce := rand.Uint64N(maxVersion/2) + 1
	open := map[int]*call{}
	var calls []*call
	var bad badTags
	keys := 0
	flush := func() {
		for _, c := range calls {
			c.stamp(s.now())
		}
		s.run(ctx, calls)
		for _, c := range calls {
			if c.err == nil {
				c.err = c.read(out)
			}
			bad.note(c.tag, c.err)
		}
		clear(open)
		calls, keys = calls[:0], 0
	}
	for i := range batch {
		tag := s.Part(&batch[i])
		c := open[tag]
		if c == nil || len(c.places) == maxCallKeys {
			c = newCall(s.prefix, nonce)
			c.tag = tag
			open[tag] = c
			calls = append(calls, c)
		}
		c.add(i, asked(&batch[i]), now)
		if keys++; keys == maxPipelineKeys {
			if flush(); bad.err != nil && s.cluster == nil {
				break
			}
		}
	}
	if keys > 0 {
		flush()
	}
	if bad.err != nil {
		s.moved(bad.err)
		return s.partly(verb, out, &bad)
	}
	return out, nil
}

// run sends calls, in a cluster those of each master in a pipeline of its own, so
// that one that does not answer takes no time of the others.
func (s *Store) run(ctx context.Context, calls []*call) {
	if s.cluster == nil {
		s.pipe(ctx, calls)
		return
	}
	s.eachMaster(ctx, len(calls), func(i int) int { return calls[i].tag }, func(of []int, err error) {
		some := make([]*call, len(of))
		for n, i := range of {
			some[n] = calls[i]
			some[n].err = err
		}
		if err == nil {
			s.pipe(ctx, some)
		}
	})
}

// pipe sends calls in one pipeline. Those of which the server says that it does
// not know the script (it is new, or was told to forget) are sent again whole:
// a pipeline does not do that by itself.
func (s *Store) pipe(ctx context.Context, calls []*call) {
	todo := calls
	for _, send := range []func(*call, context.Context, redis.Pipeliner) *redis.Cmd{(*call).evalsha, (*call).eval} {
		pipe := s.client.Pipeline()
		for _, c := range todo {
			c.reply = send(c, ctx, pipe)
		}
		_, err := pipe.Exec(ctx) // each call has its own error, unless none was sent
		var again []*call
		for _, c := range todo {
			if c.err = c.reply.Err(); c.err == nil && c.reply.Val() == nil {
				c.err = err
			}
			if redis.HasErrorPrefix(c.err, "NOSCRIPT") {
				again = append(again, c)
			}
		}
		if todo = again; len(todo) == 0 {
			return
		}
	}
	for _, c := range todo {
		c.err = fmt.Errorf("the server does not know a script that was sent whole: %w", c.err)
	}
}

func failed(verb string, err error) error {
	return fmt.Errorf("redis: %s: %w: %w", verb, regional.ErrStore, hinted(err))
}
