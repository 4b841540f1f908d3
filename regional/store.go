package regional

import (
	"context"
	"errors"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// ErrStore is returned, wrapped, when the store cannot be reached or refuses.
// Nothing is lost by it: the caller merges the same vectors again later.
var ErrStore = errors.New("store unavailable")

// Source says which of a key's G-counters an entry belongs to.
type Source uint8

const (
	FromEdge   Source = iota + 1 // an edge of this region
	FromRegion                   // the subtotal of another region
	FromPeers                    // what other regions told of this one; see taken.go
	FromHomes                    // what a key's homes told of all other regions together; see homes.go
)

// Vector is what one replica counted for a key.
type Vector struct {
	Source  Source
	Replica crdt.Replica
	Cells   []crdt.Cell // ascending by slice, no zero cell
}

// Item is a key with vectors to merge, or with what the store holds.
type Item struct {
	Key deltasync.Key
	// Width is the width of a slice, in whole milliseconds. With Slices it says
	// how long counts are kept. (A period of the calendar is named by the half
	// day in which it begins.) What is held of a key with slices
	// of another width is neither joined with it nor told.
	Width time.Duration
	// Slices is the number of slices of a window.
	Slices int
	// Version is the state of the key that the caller last saw in an answer;
	// 0: none.
	Version uint64
	Vectors []Vector
	// Carries are levels that a bucket had when slices began: lower bounds of
	// one truth, no two of one boundary, in any order, none of level 0. What
	// is to be merged has few: see Boundary.
	Carries []crdt.Carry
	// Floor says that a part of the bucket's level never drains. Rest is that
	// part: it joins by the larger level and the later boundary, each by
	// itself, and is kept for RestKept. Without Floor it is ignored.
	Floor bool
	Rest  crdt.Carry
	// Until is the end of a penalty, in nanoseconds since 1970; 0: none. It
	// joins by the later, and is kept until then: see Punished.
	Until int64
	// Note, where it is not empty, has the key listed by Store.Hot with it, for as
	// long as what is stored of it lasts: it is what whoever never heard of the
	// key has to know to load it. At most MaxNote bytes; answers have none. It is not
	// listed any more under Former, which is what Note was before.
	Note, Former string
	// NotedUntil is until when the key is listed with Note at the least, though nothing of it
	// be stored, in nanoseconds since 1970; 0: for as long as that lasts.
	NotedUntil int64
}

// MaxNote is the longest Note, in bytes.
const MaxNote = 72

// Noted is a key that is listed, with the note that it was written with.
type Noted struct {
	Key  deltasync.Key
	Note string
}

// Store joins the counts of all aggregators of a region and outlives them.
// Every vector in it is a lower bound of the truth; merging is by maximum per
// cell, and per boundary of carries, atomic per key, idempotent, and the order
// does not matter. Counts expire by themselves once their slice is a window and
// max(1 s, two slices) old: by the store's clock, cells and carries of slices
// outside of Item.Live are not stored, and those before it are not in answers;
// for what rests that is Item.Rests, for a penalty Item.Punished. Any number of goroutines may call it.
// Implementations: memstore, redisstore; both pass storetest.
type Store interface {
	// Merge joins a batch. The answer is aligned with it: for each key the
	// version now stored, and, where the version stored before differs from
	// the one the caller named (somebody else wrote, or the caller never
	// looked), all live vectors and carries of the key, what rests of it and
	// its penalty, else none. It blocks until the
	// batch is stored or ctx ends; on an error, which wraps ErrStore, any
	// part of the batch may have been stored. It keeps no reference to batch,
	// in which a key may stand twice, as may a replica in a key.
	Merge(ctx context.Context, batch []Item) ([]Item, error)

	// Hot lists the keys that were merged with a Note, a page at a time: from is 0
	// for the first, then next of the page before, which is larger, until that is 0. It is a help for
	// who takes over and no more: of very many keys those that expire first are left
	// out, one may stand there twice, under an earlier note, or for up to a window
	// after it has expired, and what is merged meanwhile may be missed. On an error,
	// which wraps ErrStore, next is where to go on past what does not answer.
	Hot(ctx context.Context, from int) (page []Noted, next int, err error)

	// Load reads keys (Key, Width, Slices and Floor; all else is ignored) and
	// answers like a Merge that changed nothing.
	Load(ctx context.Context, keys []Item) ([]Item, error)

	// Epoch changes when the store may have lost counts (a wipe, a failover,
	// a restart without persistence): then owners merge again all that they
	// hold, and edges send again what is live. It costs at most one round
	// trip.
	Epoch(ctx context.Context) (uint64, error)

	// Close releases what the store holds open.
	Close() error
}
