package deltasync

import "time"

// Rights in a strict limit are granted by one authority a key, in its home region, and
// held by edges. What an edge was ever granted and what it ever returned are numbers
// that only grow: what it holds is their difference. So a frame that is lost, late or
// comes twice does no harm: the larger number is the newer.

// Claims is what an edge tells the authority of keys in a lane: what it holds, and
// what it would hold. Grants answer it.
type Claims struct {
	Region string // that is asked
	Lane   int
	Lanes  int // as the sender is configured
	From   string
	Pop    string
	Name   string
	SentAt int64 // by a clock of the sender's own, ns: echoed, and compared with nothing else
	Claims []Claim
}

// Claim is one key's.
type Claim struct {
	Key      Key
	Holder   uint64 // one life of the key at the edge; never 0, and never used again
	Limit    uint64 // in cost: what all rights together may come to
	Lasts    time.Duration
	Granted  uint64 // ever, as far as the holder knows
	Returned uint64 // ever
	Want     uint64 // rights that it would hold
	Regional bool   // the limit is the region's own
	Bound    uint64 // rights that it has and cannot return by now, as they are spent
	// Ends says that the holder is over, and spends nothing from then on: when what it has is
	// free, all of it. An authority that does not know of it takes all to last Lasts.
	Ends []End
}

// End is when so much of what was spent has left the window, from when that is said.
type End struct {
	Cost uint64
	In   time.Duration
}

// MaxEnds is how many of them a claim has at most; a frame has no more than MaxClaims.
const MaxEnds = 8

// Grants is the authority's answer to Claims, or what it tells the edges of a region
// without being asked.
type Grants struct {
	Region string // that speaks
	Lane   int
	Status Status
	Echo   int64         // Claims.SentAt of what it answers; 0: it was not asked
	Lease  time.Duration // how long the rights hold from when that was sent
	Log    uint64        // that has what was granted: another one may lack some
	Grants []Grant
}

// Grant is one key's.
type Grant struct {
	Key     Key
	Holder  uint64
	Granted uint64 // ever
	Target  uint64 // rights that are the holder's part
	Echo    int64  // where it was not asked: Claims.SentAt of what the holder said last
	Flags   GrantFlags
	Home    string // the region to ask instead; then nothing else is said
}

// GrantFlags says what a Grant means beside.
type GrantFlags uint8

const (
	// GrantVoid: nobody knows the holder, whose lease has ended: it holds nothing.
	GrantVoid GrantFlags = 1 << iota
	// GrantRecall: others need what the holder has above its part.
	GrantRecall
	// GrantSought: the holder has less than it wants, and more may come, as others were
	// asked for what they do not use. Without it there is none for now.
	GrantSought
	allGrantFlags = GrantVoid | GrantRecall | GrantSought
)

// DefaultLease is how long rights are good for without being renewed: a shorter one
// frees those of an edge that died sooner, a longer one outlasts longer cuts.
const DefaultLease = 15 * time.Second

// MaxLease is the longest that a lease may be.
const MaxLease = time.Hour

// MaxClaims is how many keys a frame of claims, or of grants, has at most.
const MaxClaims = 512
