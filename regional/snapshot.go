package regional

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// An edge that starts knows of no key. It asks the owner of each lane for those
// near their limit, part by part; the owner has them in memory.

// snapshot is a lane's keys near their limit, the nearest first, as they were when
// it was made.
type snapshot struct {
	mu   sync.Mutex // guards what follows; held while the list is made: who waits for it wants it
	keys []deltasync.Key
	at   int64 // when it was made; 0: there is none
	good time.Duration
}

const (
	// snapshotFor is how long a list is good for edges that begin to ask, for each
	// key that was looked at, which takes up to a tenth of that. A whole fleet may
	// start at once.
	snapshotFor = 10 * time.Microsecond
	// snapshotKept is how long a list is kept for those who have begun.
	snapshotKept = 10 * time.Second
	// snapshotPart is about how large a part gets, in bytes. How many bytes a key
	// takes is known when it is encoded: these are what most take at most.
	snapshotPart = 48 << 10
	snapshotKey  = 18
	snapshotCell = 8
)

// Snapshot answers a Snap with a part of the lane's keys near their limit; nil:
// ask again, or somebody else. What is no good Snap is answered with a Down that says
// so. The keys and their order are of when the first
// part was asked for; what is told of each is of now.
func (a *Aggregator) Snapshot(now time.Time, payload []byte) []byte {
	snap, status, err := a.inbox.AdmitSnap(payload)
	if err != nil {
		return a.refuse("snap", payload, status, err, a.clock.At(now))
	}
	if !a.Serves(snap.Lane) || a.inherits(snap.Lane) {
		return nil
	}
	t := a.clock.At(now)
	l := a.lanes[snap.Lane]
	keys := l.nearest(snap.From == 0, deltasync.MaxSnapshot/len(a.lanes), t)
	keys = keys[min(snap.From, uint64(len(keys))):]
	_, regions := a.live(t)
	for part := keys; ; {
		hot := deltasync.Hot{Region: a.cfg.Region, Lane: snap.Lane, SentAt: t, LiveRegions: regions}
		n := l.tell(&hot, part, t)
		if n < len(keys) {
			hot.Next = snap.From + uint64(n)
		}
		b, err := hot.AppendBinary(nil)
		switch {
		case err == nil:
			a.stats.snapshots.Add(1)
			return b
		case errors.Is(err, deltasync.ErrTooLarge) && n > 1:
			part = part[:n/2]
		default: // our own bug
			a.cfg.Logger.Error("snapshot dropped", "lane", snap.Lane, "err", err)
			return nil
		}
	}
}

// tell adds the totals of keys until the frame is about full, and returns how
// many of them it looked at.
func (l *lane) tell(hot *deltasync.Hot, keys []deltasync.Key, now int64) (n int) {
	sections := map[deltasync.Shape]int{}
	size := 0
	for n < len(keys) && size < snapshotPart {
		l.mu.Lock()
		for range min(strides, len(keys)-n) {
			key := keys[n]
			n++
			c := l.counters[key]
			if c == nil { // it retired meanwhile
				continue
			}
			hk := deltasync.HotKey{Key: key, Totals: l.everybodys(c, math.MinInt64, now)}
			at, known := sections[c.shape]
			if !known {
				at = len(hot.Sections)
				sections[c.shape] = at
				hot.Sections = append(hot.Sections, deltasync.HotSection{Shape: c.shape})
				size += hotHead
			}
			hot.Sections[at].Keys = append(hot.Sections[at].Keys, hk)
			if size += snapshotKey + snapshotCell*(len(hk.Others)+len(hk.Peers)); size >= snapshotPart {
				break
			}
		}
		l.mu.Unlock()
	}
	return n
}

// nearest is the list of keys near their limit, most at most, a new one if there
// is none, or if the present one is too old to begin with.
func (l *lane) nearest(begins bool, most int, now int64) []deltasync.Key {
	s := &l.snapshot
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now - s.at; s.at != 0 && (!begins || age >= 0 && age < int64(s.good)) {
		return s.keys
	}
	looked := 0
	s.keys, looked = l.rank(most, now)
	s.at, s.good = now, time.Duration(looked)*snapshotFor
	return s.keys
}

// rank looks through the lane, a stretch at a time, for the keys nearest to their
// limit, and says at how many it looked.
func (l *lane) rank(most int, now int64) (keys []deltasync.Key, looked int) {
	type ranked struct {
		share float64
		key   deltasync.Key
	}
	var found []ranked
	for more := true; more; {
		l.mu.Lock()
		for range strides {
			if more = looked < len(l.order); !more {
				break
			}
			key := l.order[looked]
			looked++
			if c := l.counters[key]; l.warms(c, now) {
				share := 1.0 // of one that is kept out, whatever is used
				if c.penalty.at(now) == 0 {
					share = float64(l.used(c, now)) / float64(c.shape.Limit)
				}
				found = append(found, ranked{share, key})
			}
		}
		l.mu.Unlock()
	}
	slices.SortFunc(found, func(x, y ranked) int {
		return cmp.Or(cmp.Compare(y.share, x.share), cmp.Compare(x.key, y.key))
	})
	found = slices.CompactFunc(found, func(x, y ranked) bool { return x.key == y.key }) // it moved while others looked
	keys = make([]deltasync.Key, min(most, len(found)))
	for i := range keys {
		keys[i] = found[i].key
	}
	return keys, looked
}

// forgetSnapshot drops a list that nobody asks for any more.
func (l *lane) forgetSnapshot(now int64) {
	s := &l.snapshot
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now - s.at; age < 0 || age > int64(snapshotKept) {
		s.keys, s.at = nil, 0
	}
}
