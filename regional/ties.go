package regional

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// An aggregator that starts while its region is cut off has heard of nobody. That there
// are others, how far away, and until when they told what they counted, it has from the
// store: all aggregators of the region note that there, as if it were the counts of a key,
// so that it joins, and expires, as those do. A region that is not in it counts for nobody
// until it is heard of: it may not be there yet. While the store is away all that are
// configured may be there, and limits are shared with those that were not heard by their
// number.

const (
	// tiesWidth and tiesSlices are how long that is known: a day after somebody was
	// last heard. Each slice has when that was within it, and how far away he was.
	tiesWidth  = time.Hour
	tiesSlices = 24
	// tiesEvery is how often it is noted.
	tiesEvery = time.Second
)

// ties is what the store knows of the other regions.
type ties struct {
	mu      sync.Mutex // guards what follows; it is not held while the store is waited for
	read    bool       // once
	since   int64      // when it was read last
	told    []int64    // by place in Config.Peers, until when each has told somebody what it counted; 0: never
	noted   int64      // last
	version uint64     // in the store
}

// known says that it was read.
func (k *ties) known() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.read
}

// elsewhere is until when a peer has told others of this region what it counted, as they
// noted; ok is false where the store has not said so lately.
func (k *ties) elsewhere(j int, now int64) (told int64, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.told[j], k.read && !passed(k.since, now, int64(quietFor))
}

// tiesItem names where it is kept: no edge makes this of a key of its own.
func (a *Aggregator) tiesItem() Item {
	return Item{Key: deltasync.Key(deltasync.NodeID(a.cfg.Region, "", "ties")), Width: tiesWidth, Slices: tiesSlices}
}

// keepTies reads what is known of the other regions, once, and then notes who was heard;
// what others noted comes with that.
func (a *Aggregator) keepTies(ctx context.Context, now int64) error {
	k := &a.ties
	k.mu.Lock()
	it, read := a.tiesItem(), k.read
	if len(a.cfg.Peers) == 0 || read && !passed(k.noted, now, int64(tiesEvery)) {
		k.mu.Unlock()
		return nil
	}
	k.noted, it.Version = now, k.version
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, a.cfg.StoreTimeout)
	defer cancel()
	ask := a.store.Load
	if it.Vectors = a.tiesNow(); read && len(it.Vectors) > 0 {
		ask = a.store.Merge
	}
	answer, err := ask(ctx, []Item{it})
	if err != nil || len(answer) != 1 {
		return fmt.Errorf("what is known of other regions: %d answers: %w", len(answer), err)
	}
	for i := range answer[0].Vectors {
		a.recall(&answer[0].Vectors[i], now)
	}
	k.mu.Lock()
	k.read, k.since, k.version = true, now, answer[0].Version
	k.mu.Unlock()
	return nil
}

// unmet says that a peer is there, as the store says, or may be, as that has yet to say
// who is, which this aggregator has not heard.
func (a *Aggregator) unmet(j int) bool {
	v := a.spoken.read(j)
	return v.recalled || v.last == 0 && a.links.unread.Load()
}

// tiesNow is who was heard by this aggregator, and until when each told what it counted.
func (a *Aggregator) tiesNow() (all []Vector) {
	for j, node := range a.nodes {
		a.links.mu.Lock()
		way := a.links.ways[j]
		a.links.mu.Unlock()
		v := a.spoken.read(j)
		if told := v.told(); way != 0 && told != 0 && !v.recalled {
			all = append(all, Vector{Source: FromRegion, Replica: crdt.Replica{Node: node}, Cells: []crdt.Cell{{
				Slice:   floorDiv(told, tiesWidth),
				Charges: 1 + uint64(told%int64(tiesWidth)),
				Refunds: uint64(way),
			}}})
		}
	}
	return all
}

// recall takes in what the store knows of a region that was not heard here.
func (a *Aggregator) recall(v *Vector, now int64) {
	for j, node := range a.nodes {
		if v.Source != FromRegion || v.Replica != (crdt.Replica{Node: node}) || len(v.Cells) == 0 {
			continue
		}
		last := v.Cells[len(v.Cells)-1]
		way, within := int64(last.Refunds), int64(last.Charges)-1
		if way <= 0 || way > int64(deltasync.LongestTrip) || within < 0 || within >= int64(tiesWidth) {
			return // of another build
		}
		a.links.mu.Lock()
		if a.links.ways[j] == 0 {
			a.links.ways[j] = way
		}
		a.links.mu.Unlock()
		told := min(now, int64(last.Slice)*int64(tiesWidth)+within)
		a.spoken.recall(j, told)
		a.ties.mu.Lock()
		a.ties.told[j] = max(a.ties.told[j], told)
		a.ties.mu.Unlock()
		return
	}
}

// awaits says that some region that is known to be there was not heard of since this
// aggregator started, or not lately, or is deaf, and is not overdue yet: who has most of a limit will
// only be known then.
func (a *Aggregator) awaits(now int64) bool {
	for j := range a.cfg.Peers {
		if a.awaitsPeer(j, now) {
			return true
		}
	}
	return false
}

func (a *Aggregator) awaitsPeer(j int, now int64) bool {
	v := a.spoken.read(j)
	return (a.unmet(j) || v.last != 0 && (passed(v.last, now, int64(quietFor)) || a.links.deaf[j].Load())) && !a.links.suspects(j, a.cfg.Interval, now)
}
