package redisstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
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

// Epoch implements regional.Store: one round trip.
func (s *Store) Epoch(ctx context.Context) (uint64, error) {
	epochs, err := s.Epochs(ctx)
	switch {
	case err != nil:
		return 0, err
	case len(epochs) == 1:
		return epochs[0], nil
	}
	h := fnv.New64a()
	for _, e := range epochs {
		h.Write(binary.LittleEndian.AppendUint64(nil, e))
	}
	return h.Sum64(), nil
}

// Epochs implements regional.Parted.
func (s *Store) Epochs(ctx context.Context) ([]uint64, error) {
	if s.cluster != nil {
		return s.tagEpochs(ctx)
	}
	ids, err := s.serverIDs(ctx)
	if err != nil {
		return nil, failed("epoch", err)
	}
	return []uint64{hash(ids...)}, nil
}

func hash(ids ...string) uint64 {
	h := fnv.New64a()
	for _, id := range ids {
		h.Write(binary.AppendUvarint(nil, uint64(len(id))))
		h.Write([]byte(id))
	}
	return h.Sum64()
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
