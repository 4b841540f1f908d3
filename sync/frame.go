package deltasync

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

const (
	// Version is the newest protocol version that is read here. Frames are written in
	// the one before it, which peers of the build before read too, and Downs in
	// that of the Up that they answer: see the package comment.
	Version = 1
	// MaxFrame is the largest encoded frame, in bytes.
	MaxFrame = 64 << 10
	// MaxLanes is the largest number of lanes.
	MaxLanes = 64
)

// Key names a counter: a keyed hash (see Keyer), so that neither tenants nor
// clients' keys travel, nor can be aimed at each other.
type Key uint64

// Lane is the lane, of n, that the key belongs to.
func (k Key) Lane(n int) int { return int(uint32(k>>32) % uint32(n)) }

// Kind says who sends an Up frame.
type Kind uint8

const (
	KindEdge   Kind = 1 // an edge, to the aggregators of its region
	KindRegion Kind = 2 // a region's aggregator, to those of another
)

// Status is the answer to a frame as a whole.
type Status uint8

const (
	StatusOK          Status = 1
	StatusNotOwner    Status = 2 // counts are good, weights are missing
	StatusClock       Status = 3 // slices too far ahead were refused: mend the clock
	StatusOverloaded  Status = 4 // send less: see Pace
	StatusStoreDown   Status = 5 // counts are good, but not yet stored
	StatusUnsupported Status = 6 // newer version, or lanes that do not fit
	StatusForbidden   Status = 7 // sender and subject do not agree, or it is muted
)

func (s Status) String() string {
	switch s {
	case StatusOK:
		return "ok"
	case StatusNotOwner:
		return "not_owner"
	case StatusClock:
		return "clock"
	case StatusOverloaded:
		return "overloaded"
	case StatusStoreDown:
		return "store_down"
	case StatusUnsupported:
		return "unsupported"
	case StatusForbidden:
		return "forbidden"
	}
	return "unknown"
}

// Flags of a delta.
type Flags uint8

const (
	FlagUrgent  Flags = 1 << 0 // near the limit, first touched after idle, or denied
	FlagTouch   Flags = 1 << 1 // read only: tell me, I have nothing new
	FlagRefresh Flags = 1 << 2 // sent again against loss: export it again too
	FlagOwn     Flags = 1 << 3 // from a region that may have lost counts: tell me Totals.Own

	// FlagFirst and FlagRegular stay with the sender. Its outbox sends a delta with
	// the first before other urgent ones, and has room for it that they cannot take,
	// and one with the second before those that are neither urgent nor regular.
	FlagFirst   Flags = 1 << 7
	FlagRegular Flags = 1 << 6
)

// Features is what the sender of a frame asks for, a bit each.
type Features uint64

// FeatureOthers has a region tell another one Totals.Others of the keys whose home
// it is.
const FeatureOthers Features = 1 << 0

// FeatureLeaves has a region give to others what it would keep for an edge that falls
// silent: this one takes its leave.
const FeatureLeaves Features = 1 << 1

// FeatureDeaf has a region take another one, or an edge of its own, to be cut off, as that
// hears nothing of it: its frames, and answers, do not arrive there.
const FeatureDeaf Features = 1 << 2

// FeatureHears says the contrary: the sender, a region, has heard the other one lately. Who
// starts says neither.
const FeatureHears Features = 1 << 3

// FeatureLacks has a region tell another one at once what is asked for of the lane's keys, as
// that has just taken the lane over, and knows of none.
const FeatureLacks Features = 1 << 4

// Shape is what the counters of one section have in common: enough for an
// aggregator, which has no rules, to keep, expire and report them.
type Shape struct {
	Generation uint64        // of the rate; see limit.Rate
	Width      time.Duration // of a slice
	Slices     int           // slices of a window, the current one included
	Limit      uint64        // cost a window; of a bucket the level at which it is full, Floor included; 0: unknown
	Regional   bool          // stays inside its region
	Eager      uint64        // edges are to hear of each change at once from so much of the limit on, in percent, and one; 0: near it alone

	// Of token and leaky buckets; all zero for windows.
	Refill    uint64        // cost that drains in RefillPer
	RefillPer time.Duration // zero if and only if Refill is
	Floor     uint64        // cost below which nothing drains
}

// Bucket says that the shape is that of a token or leaky bucket.
func (s Shape) Bucket() bool { return s.Refill > 0 }

// Window is the time that the shape's slices span.
func (s Shape) Window() time.Duration { return s.Width * time.Duration(s.Slices) }

// Grace is how long after its end a slice may change and not be late. Those of short windows
// are told sooner.
func (s Shape) Grace() time.Duration { return min(3*time.Second, s.Window()/10) }

// Retold is how often a push tells all of a key that is pushed, at the least.
func (s Shape) Retold() time.Duration { return min(time.Second, s.Window()/4) }

// PushedFrom is since when, in ns since 1970, a push of that time has slices of a key where it
// does not tell all. One that has earlier ones tells all.
func (s Shape) PushedFrom(sentAt int64) int64 { return sentAt - int64(s.Retold()) - int64(s.Grace()) }

// Delta is the absolute counts of one key in the slices that changed: a small
// state to be joined, not a difference to be added.
type Delta struct {
	Key   Key
	Flags Flags
	Cells []crdt.Cell // ascending by slice
	// Carry is what is left of a bucket's past, as far as the sender knows of
	// everybody's; one of level 0 says nothing and does not travel.
	Carry crdt.Carry
	// Until is the end of a penalty, in nanoseconds since 1970: whoever was
	// denied is kept out until then, whatever room there is. It joins by the
	// later; 0: none.
	Until int64
	// Heard is the slice in which the sender last asked for totals of the key that
	// it got from whoever Up.HeardEpoch names: it has what they said. 0: it has
	// nothing, or is to hear all again.
	Heard crdt.Slice
	// Demand is how much is asked for of the key; nil: not told. The last one counts.
	Demand *Demand
}

// Tells says that the delta has something to be kept, and does not only ask:
// lost, it has to be told again.
func (d *Delta) Tells() bool { return len(d.Cells) > 0 || d.Carry.Level > 0 || d.Until != 0 }

// Section is the deltas of keys of one shape, written under one life.
type Section struct {
	Shape  Shape
	Life   uint32
	Deltas []Delta
}

// Up is what an edge sends to its region, or a region to another: here are my
// absolute counts for the keys that changed; tell me what everybody else did.
type Up struct {
	Kind        Kind
	Region      string // of the sender
	Pop         string // of the sending edge
	Name        string // of the sending edge or aggregator
	Node        uint64 // see WireNodeID, and NodeID once it was admitted; of an aggregator: its region's
	Incarnation uint64 // of the sender, in milliseconds since 1970; 0 of a region
	Lane        int
	Lanes       int
	Seq         uint64
	SentAt      int64 // sender's clock, nanoseconds since 1970
	Features    Features
	HeardEpoch  uint64 // StoreEpoch of whoever last answered in this lane; 0: nobody
	SecretCheck uint64 // in the first lane: an edge's, or that of most edges of a region: see SecretCheck; 0: not told
	Hears       uint64 // of a region: the nodes of its own and of those that it hears, by exclusive or; 0: not told
	Silent      uint64 // of a region: the nodes of those of which it heard nothing for long, by exclusive or; 0: none
	Sections    []Section

	Left  time.Duration // when it left, by a clock of the sender's that nobody sets; it is not told
	cells []crdt.Cell   // that those of the last deltas stand in, where an Outbox made the frame
}

// Replica is the entry that the sender's counts of the given life belong to.
func (u *Up) Replica(life uint32) crdt.Replica {
	if u.Kind == KindRegion {
		return crdt.Replica{Node: u.Node}
	}
	return crdt.Replica{Node: u.Node, Incarnation: u.Incarnation<<LifeBits + uint64(life)}
}

// LifeBits leaves room for 2^20 lives a millisecond between two starts of an
// edge, so that no life of one is ever a life of the other.
const LifeBits = 20

// MaxLife is the last life of an incarnation: 2^30 lives reach one second into
// the incarnations after it, and no edge starts twice within a second of
// having forgotten a billion times.
const MaxLife = 1<<30 - 1

// Totals is what everybody else did to one key, by slice, ascending.
type Totals struct {
	Others []crdt.Cell // other regions, as last heard; to a region, those that told the replier themselves, less the stored entry of the asker
	Peers  []crdt.Cell // the own region, less the stored entry of the asker
	// Carry is what is left of a bucket's past, everybody's: the asker's part
	// is not taken off. Cells before its boundary are counted in it.
	Carry crdt.Carry
	// Until is the latest end of a penalty that is known, as in a Delta.
	Until int64
	// Own is what a region that asks for it (FlagOwn) has told the replier before.
	Own []crdt.Cell
	// Share is what an edge's part of what is left follows from; nil: not told.
	Share *Share
}

// Down is the reply to an Up. Totals[i] answers the i-th delta of the frame,
// counted over its sections. To a region, Peers is the replier's own region, to be
// kept as that region's entry; Others and Own are filled where it asks for them.
type Down struct {
	Version     uint32 // that it is written in: see AnswerVersion; 0: as what answers nothing. Not kept when it is read
	Status      Status
	Region      string // of the replier
	Node        uint64 // of the replier's region
	Seq         uint64 // of the Up
	EchoSentAt  int64  // SentAt of the Up
	ReceivedAt  int64  // replier's clock
	SentAt      int64  // replier's clock
	StoreEpoch  uint64 // of the replier and its store: another one may lack what was told before
	Store       uint64 // of the store alone: what was stored before is there while this stays; 0: unknown
	Pace        time.Duration
	LiveEdges   int           // of the sender's region; to an edge, if each PoP there had as many as its own
	LiveRegions int           // regions heard of lately, the own one counted
	Regions     int           // that there are, as configured; 0: not told
	Between     time.Duration // how long counts take from region to region, one way; 0: not known
	Hears       uint64        // to a region: as Up.Hears
	Named       uint64        // to a region: 0: not told; 1: it has been a peer as long as is known; else since Named-2 whole seconds, and was none before
	Totals      []Totals
	// Refused are the deltas of the Up that were not, or not wholly, taken, by
	// index and ascending: see Took.
	Refused []uint32
	Mistake Mistake // of the sender's settings
	Lanes   int     // that the replier has, with MistakeLanes
}

// KnownEpochs is how many store epochs a sender remembers of those that answer
// it, the latest: more than a region has aggregators, or each would pass for a
// new one when its turn comes again.
const KnownEpochs = 256

// Took says whether delta i of the Up, counted over its sections, was taken.
// Where the status speaks of a refusal and no delta is named, none can be
// relied upon: the replier is of an older build, or refused the whole frame.
func (d *Down) Took(i int) bool {
	switch d.Status {
	case StatusOK, StatusNotOwner:
		return true
	case StatusStoreDown: // in memory
	default:
		if len(d.Refused) == 0 || i < 0 || i >= maxKeys {
			return false
		}
	}
	_, named := slices.BinarySearch(d.Refused, uint32(i))
	return !named
}

// Hot tells all edges of a region what is counted for keys that crossed a
// threshold of their limit, or changed above it. As the answer to a Snap it tells
// one of them of keys near their limit.
type Hot struct {
	Region      string
	Lane        int
	SentAt      int64
	LiveRegions int
	Sections    []HotSection
	Next        uint64 // of the answer to a Snap: where the next part begins; 0: this was the last
}

// HotSection is the keys of one shape.
type HotSection struct {
	Shape Shape
	Keys  []HotKey
}

// HotKey is a key's totals: Peers includes every edge of the region, so a
// receiver takes its own counts off.
type HotKey struct {
	Key Key
	Totals
}
