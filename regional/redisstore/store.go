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

// Store is a regional.Store in Redis.
type Store struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	prefix  string
}

var _ regional.Store = (*Store)(nil)

// New returns a store. It connects when it is first used, so that an aggregator
// starts without its Redis.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	s := &Store{client: redis.NewUniversalClient(cfg.options()), prefix: cfg.Prefix}
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

// moved has the client look again which node of a cluster serves what. By itself
// it does so once a minute, or when a node says that it is another: one that has
// died does not.
func (s *Store) moved(err error) {
	if s.cluster != nil && err != nil {
		s.cluster.ReloadState(context.Background()) // returns at once, and not more often than 5 times a second
	}
}

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
	now := time.Now() // places cells in groups; Redis's clock decides which are expired
	out := make([]regional.Item, len(batch))
	nonce := rand.Uint64N(maxVersion/2) + 1
	open := map[int]*call{}
	var calls []*call
	keys := 0
	flush := func() error {
		err := s.run(ctx, calls)
		s.moved(err)
		for i := 0; err == nil && i < len(calls); i++ {
			err = calls[i].read(out)
		}
		clear(open)
		calls, keys = calls[:0], 0
		return err
	}
	for i := range batch {
		slot := 0
		if s.cluster != nil {
			slot = tagOf(batch[i].Key)
		}
		c := open[slot]
		if c == nil || len(c.places) == maxCallKeys {
			c = newCall(s.prefix, nonce)
			open[slot] = c
			calls = append(calls, c)
		}
		c.add(i, asked(&batch[i]), now)
		if keys++; keys == maxPipelineKeys {
			if err := flush(); err != nil {
				return nil, failed(verb, err)
			}
		}
	}
	if keys > 0 {
		if err := flush(); err != nil {
			return nil, failed(verb, err)
		}
	}
	return out, nil
}

// run sends calls in one pipeline. Those of which the server says that it does
// not know the script (it is new, or was told to forget) are sent again whole:
// a pipeline does not do that by itself.
func (s *Store) run(ctx context.Context, calls []*call) error {
	todo := calls
	for _, send := range []func(*call, context.Context, redis.Pipeliner) *redis.Cmd{(*call).evalsha, (*call).eval} {
		pipe := s.client.Pipeline()
		for _, c := range todo {
			c.reply = send(c, ctx, pipe)
		}
		_, execErr := pipe.Exec(ctx)
		var again []*call
		for _, c := range todo {
			switch err := c.reply.Err(); {
			case redis.HasErrorPrefix(err, "NOSCRIPT"):
				again = append(again, c)
			case err != nil:
				return err
			}
		}
		if len(again) == 0 {
			return execErr
		}
		todo = again
	}
	return fmt.Errorf("the server does not know a script that was sent whole: %w", todo[0].reply.Err())
}

func failed(verb string, err error) error {
	return fmt.Errorf("redis: %s: %w: %w", verb, regional.ErrStore, err)
}
