package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// listName is the name of a tag's list.
func listName(prefix string, tag int) string { return fmt.Sprintf("%s{%02x}hot", prefix, tag) }

// member is a key as it stands in its list.
func member(key deltasync.Key, note string) string {
	return string(append(binary.BigEndian.AppendUint64(nil, uint64(key)), note...))
}

// listAtOnce is how many tags make a page of Hot: a megabyte, if all are full.
const listAtOnce = 32

// Hot implements regional.Store: the lists of the next tags. Where a server does
// not answer, no other tag of it does either.
func (s *Store) Hot(ctx context.Context, from int) (page []regional.Noted, next int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, failed("list hot keys", err)
	}
	since := strconv.FormatInt(s.now().UnixMilli(), 10) // what is listed for longer by Redis's clock does no harm
	n := max(0, min(listAtOnce, tags-from))
	replies, errs := make([]*redis.StringSliceCmd, n), make([]error, n)
	read := func(of []int) {
		pipe := s.client.Pipeline()
		for _, i := range of {
			replies[i] = pipe.ZRangeByScore(ctx, listName(s.prefix, from+i), &redis.ZRangeBy{Min: since, Max: "+inf"})
		}
		_, _ = pipe.Exec(ctx) // each has its own error
	}
	if s.cluster == nil {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		read(all)
	} else {
		s.eachMaster(ctx, n, func(i int) int { return from + i }, func(of []int, err error) {
			if err == nil {
				read(of)
			}
			for _, i := range of {
				errs[i] = err
			}
		})
	}
	var bad badTags
	for i, r := range replies {
		if r != nil && errs[i] == nil {
			errs[i] = r.Err()
		}
		if errs[i] != nil {
			bad.note(from+i, errs[i])
			continue
		}
		for _, m := range r.Val() {
			if len(m) > 8 { // else it is none of ours
				page = append(page, regional.Noted{Key: deltasync.Key(binary.BigEndian.Uint64([]byte(m[:8]))), Note: m[8:]})
			}
		}
	}
	if next = from + n; next >= tags {
		next = 0
	}
	if bad.err != nil {
		s.moved(bad.err)
		err = failed("list hot keys", bad.err)
		if s.cluster == nil {
			next = 0
		}
	}
	return page, next, err
}
