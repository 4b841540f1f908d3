package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/sync"
)

func TestCluster(t *testing.T) {
	c := cluster(t)
	t.Run("suite", func(t *testing.T) { testClusterSuite(t, c) })
	t.Run("rights", func(t *testing.T) { testClusterRights(t, c) })
	t.Run("the epoch sees one master lose its memory", func(t *testing.T) { testMasterWiped(t, c) })
	t.Run("a master freezes", func(t *testing.T) { testMasterFreezes(t, c) })
	t.Run("a slot moves", func(t *testing.T) { testSlotMoves(t, c) })
	t.Run("a master dies", func(t *testing.T) { testMasterDies(t, c) }) // the last: it leaves five
}

func testClusterSuite(t *testing.T, c *nodes) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		// One address suffices to find the others.
		s, first := openWith(t, redisstore.Config{Addrs: c.addrs()[:1], Cluster: true, Timeout: 10 * time.Second})
		c.wipe(t)
		return storetest.Subject{
			Store:   s,
			Now:     func() time.Time { return serverNow(t, first) },
			Advance: func(d time.Duration) { advance(t, first, d) },
			Wipe:    func() { c.wipe(t) },
		}
	})
}

// tagsOf is the tags whose slots the master i serves.
func (c *nodes) tagsOf(t *testing.T, i int) (out []int) {
	t.Helper()
	for tag := range 256 {
		slot := c.masters[1].must(t, "CLUSTER", "KEYSLOT", fmt.Sprintf("sg{%02x}epoch", tag)).(int64)
		addr, err := c.masters[1].owner(t, int(slot))
		if err != nil {
			t.Fatal(err)
		}
		if addr == c.masters[i].Addr {
			out = append(out, tag)
		}
	}
	return out
}

func epochs(t *testing.T, s *redisstore.Store) []uint64 {
	t.Helper()
	out, err := s.Epochs(t.Context())
	if err != nil {
		t.Fatalf("Epochs: %v", err)
	}
	return out
}

// changed is the tags whose epochs differ.
func changed(before, after []uint64) (out []int) {
	for tag := range before {
		if before[tag] != after[tag] {
			out = append(out, tag)
		}
	}
	return out
}

// Only what a master lost has to be written again.
func testMasterWiped(t *testing.T, c *nodes) {
	s, _ := openWith(t, redisstore.Config{Addrs: c.addrs(), Timeout: 10 * time.Second})
	for i, n := range c.masters {
		whole, before := epoch(t, s), epochs(t, s)
		flush(t, n.client)
		if got, want := changed(before, epochs(t, s)), c.tagsOf(t, i); !slices.Equal(got, want) {
			t.Errorf("%s was wiped, and the epochs of %d tags changed, want those of its %d: %v, want %v", n.Addr, len(got), len(want), got, want)
		}
		if got := epoch(t, s); got == whole {
			t.Errorf("%s was wiped, and the epoch of all is still %d", n.Addr, got)
		}
	}
}

// A master that does not answer takes the time of its own tags alone.
func testMasterFreezes(t *testing.T, c *nodes) {
	s, _ := openWith(t, redisstore.Config{Addrs: c.addrs(), Timeout: 10 * time.Second})
	c.wipe(t)
	merge(t, s, one(1, 1)) // who serves what is known by now
	epoch(t, s)
	batch := make([]regional.Item, 512)
	for i := range batch {
		batch[i] = one(deltasync.Key(i), 5)
	}
	frozen := c.tagsOf(t, 1)
	c.masters[1].Pause()
	defer c.masters[1].Continue()
	only := func(what string, err error) error {
		some, ok := errors.AsType[*regional.PartsError](err)
		if !ok || !errors.Is(err, regional.ErrStore) {
			return fmt.Errorf("%s: %w, want ErrStore of some parts", what, err)
		}
		got := slices.Sorted(slices.Values(some.Parts))
		if !slices.Equal(got, frozen) {
			return fmt.Errorf("%s: tags %v failed, want those of the frozen master, %v", what, got, frozen)
		}
		return nil
	}
	c.masters[0].await(t, func() error { // a slow machine may need more than one try
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		out, err := s.Merge(ctx, batch)
		if err := only("Merge", err); err != nil {
			return err
		}
		for i := range out {
			if there := !slices.Contains(frozen, i%256); there != (out[i].Version != 0) {
				t.Errorf("the answer to key %d is %+v, want one: %v", i, out[i], there)
			}
		}
		return nil
	})
	c.masters[0].await(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Epochs(ctx)
		return only("Epochs", err)
	})
}

// testSlotMoves moves a slot key by key while counts go on rising. In between
// nodes answer ASK, TRYAGAIN (a call names groups of which some have moved) and
// MOVED. What was acknowledged is there when it is over, and nothing else, and
// nobody has to write again: the canary moves too.
func testSlotMoves(t *testing.T, c *nodes) {
	s, _ := openWith(t, redisstore.Config{Addrs: c.addrs(), Timeout: 10 * time.Second})
	c.wipe(t)
	epoch(t, s) // a master that is as new as the last look at a tag may be a replica that took over meanwhile
	before := epoch(t, s)
	const tag = 0xa7
	keys := make([]deltasync.Key, 8) // of one tag, so of one slot
	acked := make([]uint64, len(keys))
	told := uint64(0)
	item := one(1, 1) // all in one slice, so that the sum is the count
	tell := func() (failed int, err error) {
		told++
		for i := range keys {
			it := item
			it.Key, it.Vectors = keys[i], slices.Clone(item.Vectors)
			it.Vectors[0].Cells = slices.Clone(it.Vectors[0].Cells)
			it.Vectors[0].Cells[0].Charges = told
			switch _, merr := s.Merge(t.Context(), []regional.Item{it}); {
			case merr == nil:
				acked[i] = told
			case errors.Is(merr, regional.ErrStore):
				failed, err = failed+1, merr
			default:
				t.Fatalf("Merge: %v, want ErrStore or nothing", merr)
			}
		}
		return failed, err
	}
	for i := range keys {
		keys[i] = deltasync.Key(i<<8 | tag)
	}
	if _, err := tell(); err != nil {
		t.Fatal(err)
	}

	slot := int(c.masters[0].must(t, "CLUSTER", "KEYSLOT", fmt.Sprintf("sg{%02x}epoch", tag)).(int64))
	addr, err := c.masters[0].owner(t, slot)
	if err != nil {
		t.Fatal(err)
	}
	from := c.masters[slices.Index(c.addrs(), addr)]
	to := c.masters[(slices.Index(c.addrs(), addr)+1)%3]
	to.must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id)
	from.must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
	host, port, _ := net.SplitHostPort(to.Addr)
	moved, refused := 0, 0
	for {
		names := from.must(t, "CLUSTER", "GETKEYSINSLOT", slot, 3).([]any)
		if len(names) == 0 {
			break
		}
		for _, name := range names {
			from.must(t, "MIGRATE", host, port, name, 0, 10000)
			moved++
		}
		n, err := tell()
		if refused += n; n > 0 {
			t.Logf("after %d keys %d were refused: %v", moved, n, err)
		}
		if got := epoch(t, s); got != before {
			t.Errorf("after %d keys the epoch is %d, want %d: nothing is lost", moved, got, before)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused while the slot moved: TRYAGAIN was not tried")
	}
	if moved < len(keys)+1 {
		t.Errorf("only %d keys moved, want those of %d counters and the canary", moved, len(keys))
	}
	for _, n := range c.masters {
		n.must(t, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
	}
	for i, key := range keys {
		if got := counted(t, s, key); got < acked[i] || got > told {
			t.Errorf("key %d counts %d when the slot has moved, want %d, which was acknowledged, to %d", key, got, acked[i], told)
		}
	}
	if n, err := tell(); n > 0 {
		t.Errorf("when the slot has moved %d are refused: %v", n, err)
	}
	for _, key := range keys {
		if got := counted(t, s, key); got != told {
			t.Errorf("key %d counts %d in the end, want %d", key, got, told)
		}
	}
	if got := epoch(t, s); got != before {
		t.Errorf("the epoch went from %d to %d, want it as it was: nothing is lost", before, got)
	}
}

// testMasterDies kills a master: its replica takes over by itself, the epoch
// tells, and what is merged meanwhile is there in the end.
func testMasterDies(t *testing.T, c *nodes) {
	s, _ := openWith(t, redisstore.Config{Addrs: c.addrs()})
	c.wipe(t)
	before, dead := epochs(t, s), c.tagsOf(t, 0)
	batch := make([]regional.Item, 512)
	for i := range batch {
		batch[i] = one(deltasync.Key(i), 5)
	}
	merge(t, s, batch...)
	rights := clusterRights(t, c)
	for i := range c.masters {
		c.caughtUp(t, i)
	}
	for _, n := range append(c.masters[1:], c.replicas...) { // from now on they are in a hurry
		n.must(t, "CONFIG", "SET", "cluster-node-timeout", 500)
	}
	c.masters[0].Kill()
	_, err := s.Merge(t.Context(), batch)
	if some, ok := errors.AsType[*regional.PartsError](err); !ok || !errors.Is(err, regional.ErrStore) ||
		!slices.Equal(slices.Sorted(slices.Values(some.Parts)), dead) {
		t.Errorf("Merge without a master: %v, want ErrStore of its tags, %v", err, dead)
	}
	c.replicas[0].await(t, func() error {
		addr, err := c.masters[1].owner(t, 0)
		if err == nil && addr != c.replicas[0].Addr {
			err = fmt.Errorf("%s still serves slot 0", addr)
		}
		return err
	})
	promoted := time.Now()
	c.replicas[0].await(t, func() error {
		_, err := s.Merge(t.Context(), batch)
		return err
	})
	if took := time.Since(promoted); took > 10*time.Second {
		t.Errorf("the store found the new master %v after its promotion, want it soon: the client by itself looks once a minute", took)
	}
	for i := range batch {
		if got := counted(t, s, batch[i].Key); got != 5 {
			t.Errorf("key %d counts %d after a failover, want 5", i, got)
		}
	}
	if got := changed(before, epochs(t, s)); !slices.Equal(got, dead) {
		t.Errorf("a replica took over, and the epochs of tags %v changed, want %v", got, dead)
	}
	rights(dead)
}
