package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// canaries writes the canaries that are missing and reads all. It is short and
// seldom run, so it is sent whole.
const canaries = `
local out = {}
for i, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1], 'NX')
  out[i] = redis.call('GET', key)
end
return out`

var errReplid = errors.New("INFO replication has no master_replid; the Redis user needs the INFO command")

// Epoch implements regional.Store: one round trip, and to a cluster two.
func (s *Store) Epoch(ctx context.Context) (uint64, error) {
	var ids []string
	var err error
	if s.cluster != nil {
		ids, err = s.clusterIDs(ctx)
	} else {
		ids, err = s.serverIDs(ctx)
	}
	if err != nil {
		s.moved(err)
		return 0, failed("epoch", err)
	}
	h := fnv.New64a()
	for _, id := range ids {
		h.Write(binary.AppendUvarint(nil, uint64(len(id))))
		h.Write([]byte(id))
	}
	return h.Sum64(), nil
}

// serverIDs is the canaries of one server, and its replication id.
func (s *Store) serverIDs(ctx context.Context) ([]string, error) {
	keys := make([]string, tags)
	for tag := range keys {
		keys[tag] = s.canary(tag)
	}
	pipe := s.client.Pipeline()
	read := pipe.Eval(ctx, canaries, keys, freshCanary())
	info := pipe.Info(ctx, "replication")
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	ids, err := read.StringSlice()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, err)
	}
	id, err := replid(info.Val())
	return append(ids, id), err
}

// clusterIDs is the canaries of all tags, wherever they are, and the
// replication ids of all masters.
func (s *Store) clusterIDs(ctx context.Context) ([]string, error) {
	pipe := s.client.Pipeline()
	reads := make([]*redis.Cmd, tags)
	for tag := range reads {
		reads[tag] = pipe.Eval(ctx, canaries, []string{s.canary(tag)}, freshCanary())
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range reads {
		id, err := r.StringSlice()
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errReply, err)
		}
		ids = append(ids, id...)
	}
	var mu sync.Mutex
	var masters []string // guarded by mu
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		id, err := replid(info)
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, id)
		return err
	})
	slices.Sort(masters)
	return append(ids, masters...), err
}

func (s *Store) canary(tag int) string { return fmt.Sprintf("%s{%02x}epoch", s.prefix, tag) }

func freshCanary() string { return strconv.FormatUint(rand.Uint64(), 36) }

// replid is the replication id in the output of INFO replication.
func replid(info string) (string, error) {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "master_replid:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", errReplid
}
