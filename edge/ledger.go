package edge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
)

// record is the header of a live key: all that a decision reads and writes
// while the allowance lasts. It fills one cache line.
type record struct {
	key       deltasync.Key // 0: an empty place
	until     int64         // the allowance is good before this instant, in ns since 1970
	allowance uint64        // cost that may be admitted without folding
	fresh     uint64        // cost charged in block.slice since the last fold
	block     *block        // its own, or that of all sparse records like it; see sparse.go
	local     uint32        // own cost in the window at the last fold, saturating; of a sparse record its life
	merged    uint32        // others' cost likewise; of a sparse record when it was sent
	heard     int64         // when the key was last heard of, in ns since 1970; 0: never
	epoch     uint32        // of the rules that the allowance was made under
	regions   uint8         // at most mostRegions; and whether the record is sparse
	scale     uint8         // about how large the limit is; see scaleOf
	flags     flags
}

type flags uint16

const (
	dirty   flags = 1 << iota // stands in its shard's dirty list
	charged                   // block.unsent names slices with unsent counts
	urgent                    // should not wait for the next regular flush
	touch                     // others' counts are wanted, whatever was charged
	again                     // goes out as a refresh: somebody may have lost it
	refused                   // block.denied is set
	owed                      // the region turned counts away; all of them are to be told again
	untold                    // block.denied is a penalty that the outbox lacks

	lasting = refused | owed | 0xff<<spaceShift // flags that outlive a flush
)

const _ = uint(64 - unsafe.Sizeof(record{})) // a record outgrew its cache line

// block is what a record needs only when it folds, flushes or hears.
type block struct {
	rate    *limit.Rate
	own     crdt.Vector // this edge, this life
	others  crdt.Vector // everybody else in scope, as last heard
	slice   crdt.Slice  // the slice that fresh belongs to
	unsent  crdt.Slice  // own slices from here on have counts that the outbox lacks
	denied  denial      // the last one, while it is sure to hold
	sentAt  int64       // when own counts, or a penalty, were last handed over; 0: never under this life
	fullAt  int64       // when all live own counts, and the penalty, were last handed over together
	heardAt int64       // when it was last asked what others counted, and answered; see heardIn
	life    uint32      // that the record was born under; of a common block how many share it
	wave    uint16      // of resends that fullAt answered: the last bits of resend.wave
	weight  uint16      // of the block, as last weighed, in units of 16 bytes
	memory  *memory     // nil for windows
	held    *held       // nil but for keys that were blocked when they came
	share   *share      // of a counter that is decided by shares, once that matters
	room    [16]byte    // for the first cells of own: most keys never need more, and then no other memory is read for them
}

const _ = uint(192 - unsafe.Sizeof(block{})) // a block outgrew what the allocator rounds it to

// denial is what a request of some cost was told: until then it would be told
// the same, since what is used only falls with time. See penalty.go for those
// that hold whatever is used.
type denial struct {
	cost  uint64 // what there was no room for; 0: none
	until int64  // ns since 1970
}

// forgive forgets a denial that may be out of date; a penalty stays.
func (r *record) forgive() {
	if r.block.denied.cost != penalty {
		r.flags &^= refused
		r.block.denied = denial{}
	}
}

// nothing marks a block with no unsent slice.
const nothing = crdt.Slice(1<<63 - 1)

// shard is a part of the ledger under one lock.
type shard struct {
	mu         sync.Mutex // guards everything below; held for one decision or one delta
	table      []record   // linear probing, never full
	where      *where     // the table is; nil in a test of a shard alone
	latest     int64      // time that something was decided at; see steady
	used       int
	max        int                      // records at most
	bytes      int                      // that they may take; 0: their number alone counts
	weight     int                      // of their blocks, as last weighed, in units of 16 bytes
	owing      int                      // records that are owed
	dirty      [classes][]deltasync.Key // records that are dirty; of one that stands twice the first counts
	waits      atomic.Uint32            // lists in dirty that are not empty, or not for long, a bit each: written under the lock, read without
	free       []*block
	spaces     []uint32 // records by namespace; see enter
	namespaces int      // namespaces that have some
	blocked    blocked  // keys that are not live here
	commons    [commons]*block
	wave       uint16 // of resends, as last seen
	coldTick   int64  // when the cold ones were last drained; see cold.due
	cluster    *cluster
	claims     []deltasync.Key // counters of strict rates of which the authority should hear
	scratch    []crdt.Cell
	apart      []crdt.Cell // others' cells, beside the sums in scratch
	tended     bool        // by Tick; else decisions have what grew make room
	strayed    strayed     // what a clock that was set back had moved
	keeping    int32       // counters that keep a few rights, of those that this round of Tick has met; see tend
	_          [12]byte    // the next lock begins a cache line
}

const line = 64 // bytes that a processor fetches at once

// where tells of a shard's table what fetch needs. It stands apart from the shard, whose
// first line moves between processors with its lock: a look at it would bring that here
// twice, to be read and then to be taken.
type where struct {
	first atomic.Pointer[record]
	size  atomic.Int64
}

const smallestTable = 16

// home is the place of a key, or the one before it. It looks at the last bits
// only, by which the rates of one key stand side by side (see deltasync.Hash).
func (s *shard) home(key deltasync.Key) int { return homeOf(key, len(s.table)) }

func homeOf(key deltasync.Key, size int) int { return int(uint64(uint32(key)<<8) * uint64(size) >> 32) }

// after is the place that follows one.
func (s *shard) after(i int) int {
	if i++; i < len(s.table) {
		return i
	}
	return 0
}

// find is the live record of key, or nil. It is good until the next insert or
// remove.
func (s *shard) find(key deltasync.Key) *record {
	if len(s.table) == 0 {
		return nil
	}
	for i := s.home(key); ; i = s.after(i) {
		switch r := &s.table[i]; r.key {
		case key:
			return r
		case 0:
			return nil
		}
	}
}

// bringHome has a record and the one at its home change places, so that those which
// are asked for slice after slice stand where they are looked for first: others that
// are passed on the way cost a miss each, and belong to other processors. Any record
// may stand further from its home where no place between is empty, as here. The
// record is where it says; all other records may have moved.
func (s *shard) bringHome(r *record) *record {
	home := &s.table[s.home(r.key)]
	if home != r {
		*home, *r = *r, *home
	}
	return home
}

// bringAllHome is bringHome for the records of a rule's rates, whose homes are one:
// they change places with others until they stand in the first that there are from
// there.
func (s *shard) bringAllHome(records []*record) {
	home := s.home(records[0].key)
	for i, r := range records {
		for at := home; !s.within(r, home, len(records)); at = s.after(at) {
			if p := &s.table[at]; !slices.Contains(records, p) {
				*p, *r = *r, *p
				records[i], r = p, p
			}
		}
	}
}

// within says that a record is one of so many places from one on.
func (s *shard) within(r *record, from, places int) bool {
	at := int(uintptr(unsafe.Pointer(r))-uintptr(unsafe.Pointer(&s.table[0]))) / int(unsafe.Sizeof(record{}))
	return s.behind(from, at) < places
}

// living is the record of one life of key, or nil: it was forgotten since, or came back.
func (s *shard) living(key deltasync.Key, life uint32) *record {
	if r := s.find(key); r != nil && r.life() == life {
		return r
	}
	return nil
}

// insert makes a record for key, which must be absent. The caller has made room,
// and gives it a block: see node.admit.
func (s *shard) insert(key deltasync.Key) *record {
	if s.tight() {
		s.grow()
	}
	r := s.place(key)
	*r = record{key: key}
	s.used++
	return r
}

// tight says that the table has to grow for one more record.
func (s *shard) tight() bool { return (s.used+1)*8 > len(s.table)*7 }

// larger is the next size of the table. A quarter more each time leaves a fifth
// of it empty on average; twice as much would leave a third.
func (s *shard) larger() int { return max(smallestTable, len(s.table)+len(s.table)/4) }

func (s *shard) place(key deltasync.Key) *record {
	i := s.home(key)
	for s.table[i].key != 0 {
		i = s.after(i)
	}
	return &s.table[i]
}

func (s *shard) grow() {
	old := s.table
	s.table = slices.Grow([]record(nil), s.larger())
	s.table = s.table[:cap(s.table)] // what the allocator gives, as it rounds up
	clear(s.table)
	if s.where != nil {
		s.where.first.Store(&s.table[0])
		s.where.size.Store(int64(len(s.table)))
	}
	for i := range old {
		if old[i].key != 0 {
			*s.place(old[i].key) = old[i]
		}
	}
}

// remove takes out the record at place i and closes the gap, so that probing
// still finds what stood behind it (Knuth, TAOCP 3, §6.4, algorithm R).
func (s *shard) remove(i int) {
	s.paid(&s.table[i])
	s.leave(&s.table[i])
	s.vacate(&s.table[i])
	s.used--
	for j := i; ; {
		s.table[i] = record{}
		for {
			j = s.after(j)
			if s.table[j].key == 0 {
				return
			}
			if s.behind(s.home(s.table[j].key), j) >= s.behind(i, j) {
				break // its probe path runs through the gap
			}
		}
		s.table[i] = s.table[j]
		i = j
	}
}

// behind is how far place j lies behind place i.
func (s *shard) behind(i, j int) int {
	if j >= i {
		return j - i
	}
	return j - i + len(s.table)
}

// owe notes that the region does not have the record's counts, though it
// answered for them.
func (s *shard) owe(r *record) {
	if r.flags&owed == 0 {
		r.flags |= owed
		s.owing++
	}
}

// paid notes that all live counts of the record were handed over, or are gone.
func (s *shard) paid(r *record) {
	if r.flags&owed != 0 {
		r.flags &^= owed
		s.owing--
	}
}

func (s *shard) newBlock() *block {
	if n := len(s.free); n > 0 {
		b := s.free[n-1]
		s.free = s.free[:n-1]
		return b
	}
	b := &block{unsent: nothing}
	b.own.StartIn(b.room[:])
	return b
}

// spare is how many blocks a shard keeps for the next keys: enough for what
// comes and goes between two sweeps, little beside those in use.
const spare = 16

// recycle keeps a block and the memory of its vectors for the next key.
func (s *shard) recycle(b *block) {
	if len(s.free) >= spare {
		return
	}
	own, others, memory := b.own, b.others, b.memory
	own.Reset()
	others.Reset()
	if memory != nil {
		memory.exact.Reset() // a long log is not worth keeping
	}
	*b = block{own: own, others: others, memory: memory, unsent: nothing}
	s.free = append(s.free, b)
}

// settle moves the record's fresh charges into its block, if it has one.
func (r *record) settle() {
	if r.fresh == 0 || r.sparse() {
		return
	}
	b := r.block
	b.own.Add(crdt.Cell{Slice: b.slice, Charges: r.fresh})
	if b.memory != nil {
		b.memory.exact.Charge(b.rate, r.fresh, b.memory.at)
	}
	if h := b.confined(); h != nil {
		h.used = crdt.SatAdd(h.used, r.fresh)
		if !h.idle() {
			r.scale = full
		}
	}
	if b.share != nil {
		b.share.spend(r.fresh)
		if b.share.rights != nil {
			b.share.rights.spend(b.rate, r.fresh)
		}
	}
	r.local = saturate(crdt.SatAdd(uint64(r.local), r.fresh))
	r.fresh = 0
}

// fold sums what is counted and sets the allowance for the slice of now, or as
// long as charges may be gathered without losing exactness.
func (s *shard) fold(r *record, rule *limit.Rule, rate *limit.Rate, now int64) {
	if !r.sparse() || !s.foldSparse(r, rate, now) {
		s.foldBlock(r, rule, rate, now)
	}
	s.confineToContact(r, rate, now)
	r.epoch = rule.Epoch
	if !slices.Contains(rule.Rates, rate) { // an open margin, or a limit that a request named
		r.epoch |= opened
	}
}

// foldBlock is fold of a record with a block of its own, or that needs one.
func (s *shard) foldBlock(r *record, rule *limit.Rule, rate *limit.Rate, now int64) {
	b := s.whole(r)
	calm := r.flags&charged == 0 || r.calm(b.rate)
	if r.settle(); calm && !r.calm(b.rate) && r.flags&charged != 0 {
		s.enlist(r, hot)
	}
	s.retire(r, now) // by the rate that it was charged under
	s.goesBy(b, rate, now)
	r.rescale(rate)
	b.slice = rate.SliceAt(now)
	if r.flags&charged != 0 { // a decision with an older now may fold after one with a newer
		b.unsent = min(b.unsent, b.slice)
	}
	s.recall(b, now)
	level := s.measure(r, now)
	r.allowance = rate.Room(level)
	r.until = rate.EndOf(b.slice)
	if s.shares(rate) {
		s.confineToShare(r, rate, level, now)
	} else if b.share != nil && rate.Consistency < limit.Adaptive {
		b.share = nil // it was decided so by the rules before
	}
	if b.memory != nil {
		b.memory.at = now
		r.until = min(r.until, rate.Lump(&b.memory.exact, now))
	}
	if rate.Queue {
		r.until = 0 // each request has a turn of its own
	}
	if escrows(rate) {
		s.confineToRights(r, rate, now)
	} else if b.share != nil {
		b.share.rights = nil // the rules are others; they are gone with the lease
	}
	if b.held != nil {
		r.confine(now)
	}
	s.weigh(b)
	if b.punished(now) && rule.Punishes() {
		r.allowance, r.until = 0, min(r.until, b.denied.until)
		r.scale = full // it is forgotten as late as one that has used all
	} else {
		b.denied = denial{}
	}
}

// goesBy has a settled block go by a rate. Where rules changed a queue's pace, who waits, here
// or elsewhere, keeps his turn of the one that was.
func (s *shard) goesBy(b *block, rate *limit.Rate, now int64) {
	if rate.Queue && b.rate.Queue && !rate.RuledAsFast(b.rate) {
		b.memory.exact.Behind(b.rate.Lines(func(was *limit.Rate) int64 { return now + int64(s.delay(b, was, now)) }), int64(b.rate.Longest()), 0, now)
	}
	b.rate = rate
}

// measure sums what is counted of a settled record, notes whose it is, and
// returns the level.
func (s *shard) measure(r *record, now int64) limit.Level {
	b := r.block
	local := s.ownLevel(b, now)
	level := local
	switch {
	case b.memory != nil:
		level = b.rate.Measure(&b.memory.exact, s.heard(b), s.sums(b), b.memory.carry, now)
	case b.others.Len() > 0:
		level = b.rate.Used(s.sums(b), crdt.Carry{}, now)
	}
	own := b.rate.Rounded(local)
	r.local = saturate(own)
	r.merged = saturate(crdt.SatSub(b.rate.Rounded(level), own))
	return level
}

// ownLevel is the level that this edge's own counts make.
func (s *shard) ownLevel(b *block, now int64) limit.Level {
	if b.memory != nil {
		return b.rate.Own(&b.memory.exact, now)
	}
	s.scratch = b.own.Cells(s.scratch[:0])
	return b.rate.Used(s.scratch, crdt.Carry{}, now)
}

// spentHere is what this edge counted by the last fold, of which the record has only so
// much: a limit of bytes may be larger.
func (s *shard) spentHere(r *record, now int64) uint64 {
	if r.local < 1<<32-1 {
		return uint64(r.local)
	}
	return r.block.rate.Rounded(s.ownLevel(r.block, now))
}

// wait is how long a record has to wait until cost fits.
func (s *shard) wait(b *block, cost uint64, now int64) time.Duration {
	var punished time.Duration
	if b.punished(now) {
		punished = time.Duration(b.denied.until - now)
	}
	if b.memory == nil {
		return max(punished, b.rate.RetryAfter(s.sums(b), crdt.Carry{}, cost, now))
	}
	return max(punished, b.rate.Wait(&b.memory.exact, s.heard(b), s.sums(b), b.memory.carry, cost, now))
}

// delay is how long a request that is charged now has to wait for its turn, by a rate.
func (s *shard) delay(b *block, rate *limit.Rate, now int64) time.Duration {
	return rate.Delay(&b.memory.exact, s.sums(b), b.memory.carry, now)
}

func saturate(x uint64) uint32 { return uint32(min(x, 1<<32-1)) }
