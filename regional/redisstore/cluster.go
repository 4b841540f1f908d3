package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional"
)

// Parts implements regional.Parted: a cluster fails by tags, a server as a whole.
func (s *Store) Parts() int {
	if s.cluster == nil {
		return 1
	}
	return tags
}

// Part implements regional.Parted.
func (s *Store) Part(it *regional.Item) int {
	if s.cluster == nil {
		return 0
	}
	return tagOf(it.Key)
}

// badTags is what failed, and the first reason.
type badTags struct {
	tags []int
	err  error
}

func (b *badTags) note(tag int, err error) {
	if err == nil {
		return
	}
	if b.err == nil {
		b.err = err
	}
	if !slices.Contains(b.tags, tag) {
		b.tags = append(b.tags, tag)
	}
}

// partly is the answer of a call of which some failed: of a server all did.
func (s *Store) partly(verb string, out []regional.Item, bad *badTags) ([]regional.Item, error) {
	err := failed(verb, bad.err)
	if s.cluster == nil {
		return nil, err
	}
	return out, &regional.PartsError{Parts: bad.tags, Err: err}
}

// moved has the client look again which node of a cluster serves what. By itself
// it does so once a minute, or when a node says that it is another: one that has
// died does not.
func (s *Store) moved(err error) {
	if s.cluster != nil && err != nil {
		s.cluster.ReloadState(context.Background()) // returns at once, and not more often than 5 times a second
	}
}

// eachMaster calls do for each master of a cluster, all at once, with those of n
// things whose tags it serves. One whose master is not known comes with an error.
func (s *Store) eachMaster(ctx context.Context, n int, tag func(i int) int, do func(of []int, err error)) {
	of := map[*redis.Client][]int{}
	for i := range n {
		c, err := s.cluster.MasterForKey(ctx, s.canary(tag(i)))
		if err != nil {
			do([]int{i}, err)
			continue
		}
		of[c] = append(of[c], i)
	}
	var wg sync.WaitGroup
	for _, some := range of {
		wg.Go(func() { do(some, nil) }) // waited for below; ctx stops it
	}
	wg.Wait()
}

// tagCanary writes a tag's canary if it is missing, and reads it, and whose copy
// it is.
const tagCanary = `
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return {redis.call('GET', KEYS[1]), redis.call('INFO', 'replication')}`

// tagEpochs asks for all canaries, and for the replication id of the master that
// has each.
func (s *Store) tagEpochs(ctx context.Context) ([]uint64, error) {
	var replies [tags]*redis.Cmd
	var errs [tags]error
	s.eachMaster(ctx, tags, func(i int) int { return i }, func(of []int, err error) {
		pipe := s.client.Pipeline()
		for _, tag := range of {
			if errs[tag] = err; err == nil {
				replies[tag] = pipe.Eval(ctx, tagCanary, []string{s.canary(tag)}, freshCanary())
			}
		}
		_, _ = pipe.Exec(ctx) // each has its own error
	})
	var bad badTags
	var now [tags]sighting
	for tag, r := range replies {
		if errs[tag] == nil {
			now[tag], errs[tag] = sightingOf(r)
		}
		bad.note(tag, errs[tag])
	}
	epochs := s.seen.learn(&now)
	if bad.err != nil {
		s.moved(bad.err)
		return epochs, &regional.PartsError{Parts: bad.tags, Err: failed("epoch", bad.err)}
	}
	return epochs, nil
}

// sighting is a tag's canary and the replication id of its master; empty if it
// was not seen.
type sighting struct{ canary, master string }

func sightingOf(r *redis.Cmd) (sighting, error) {
	reply, err := r.StringSlice()
	if err != nil {
		return sighting{}, err
	}
	if len(reply) != 2 {
		return sighting{}, fmt.Errorf("%w: %d parts of a canary", errReply, len(reply))
	}
	id, err := replid(reply[1])
	return sighting{reply[0], id}, err
}

// sightings is what was last seen of each tag, and when.
type sightings struct {
	mu     sync.Mutex // guards what follows
	turn   uint64     // counts calls of learn
	last   [tags]sighting
	at     [tags]uint64 // the turn of last
	epochs [tags]uint64
	since  map[string]uint64 // the turn in which a master was first seen
}

// learn notes what is seen of the tags, and returns their epochs, 0 of one that
// was never seen. A tag with another canary has lost counts. One with the same at
// another master has it from a replica, which may lack the last ones; unless that
// master was there before the tag was last seen elsewhere: then it moved, and has
// all. One that was first seen in the same turn may have taken over in the midst of
// it.
func (s *sightings) learn(now *[tags]sighting) []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	since := map[string]uint64{}
	for tag, t := range now {
		if t == (sighting{}) {
			t = s.last[tag]
		}
		first, known := s.since[t.master]
		if !known {
			first = s.turn
		}
		since[t.master] = first
		if now[tag] == (sighting{}) {
			continue
		}
		old := s.last[tag]
		if t.canary != old.canary || t.master != old.master && first >= s.at[tag] {
			s.epochs[tag] = hash(t.canary, t.master)
		}
		s.last[tag], s.at[tag] = t, s.turn
	}
	s.since = since
	return slices.Clone(s.epochs[:])
}
