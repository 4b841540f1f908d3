package deltasync

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// frames makes random valid frames, extremes included.
type frames struct{ *rand.Rand }

func newFrames(seed uint64) frames { return frames{rand.New(rand.NewPCG(seed, 1))} }

// number is small, or has any number of bits.
func (r frames) number() uint64 {
	if r.IntN(2) == 0 {
		return r.Uint64N(4)
	}
	return r.Uint64() >> r.IntN(64)
}

func (r frames) token() string {
	names := []string{"", "eu", "us-east-1", "0", "a2345678901234567890123456789-2"}
	return names[r.IntN(len(names))]
}

func (r frames) key() Key { return Key(max(1, r.Uint64())) }

func (r frames) shape() Shape {
	widths := []time.Duration{time.Millisecond, 1500 * time.Millisecond, time.Minute, 366 * 24 * time.Hour}
	s := Shape{Generation: r.number(), Width: widths[r.IntN(len(widths))], Slices: 1, Limit: r.number(), Regional: r.IntN(2) == 0, Eager: r.Uint64N(102)}
	if most := int(min(1024, maxWindow/s.Width)); r.IntN(2) == 0 {
		s.Slices = 1 + r.IntN(most)
	}
	if r.IntN(2) == 0 {
		s.Refill, s.RefillPer = 1+r.Uint64N(maxUnits), 1+time.Duration(r.Int64N(int64(maxWindow)))
		s.Floor = min(r.number(), maxUnits)
	}
	return s
}

func (r frames) cells(around crdt.Slice) []crdt.Cell {
	var cells []crdt.Cell
	at := around + crdt.Slice(r.IntN(3))
	if r.IntN(8) == 0 {
		at = -maxSlice + crdt.Slice(r.Uint64N(uint64(2*maxSlice)))
	}
	for range r.IntN(4) {
		c := crdt.Cell{Slice: at, Charges: r.number()}
		if r.IntN(4) == 0 {
			c.Refunds = r.number()
		}
		if c.Zero() {
			c.Charges = 1
		}
		cells = append(cells, c)
		if at += crdt.Slice(1 + r.IntN(3)); r.IntN(16) == 0 {
			at += maxSlice / 2
		}
		if at > maxSlice {
			break
		}
	}
	return cells
}

// carry is none, near, or anywhere.
func (r frames) carry(around crdt.Slice) crdt.Carry {
	switch c := (crdt.Carry{Boundary: around - crdt.Slice(r.IntN(50)), Level: max(1, r.number())}); r.IntN(4) {
	case 0:
		c.Boundary = -maxSlice + crdt.Slice(r.Uint64N(uint64(2*maxSlice)))
		return c
	case 1:
		return c
	}
	return crdt.Carry{}
}

// until is mostly none, or any instant from 1970 on.
func (r frames) until() int64 {
	if r.IntN(4) > 0 {
		return 0
	}
	return int64(r.Uint64() >> (1 + r.IntN(63)))
}

func (r frames) up() *Up {
	u := &Up{
		Kind: KindEdge + Kind(r.IntN(2)), Region: r.token(), Pop: r.token(), Name: r.token(), Node: r.number(),
		Incarnation: r.Uint64N(maxIncarnation + 1), Lanes: 1 + r.IntN(MaxLanes), Seq: r.number(), SentAt: int64(r.number()), Features: Features(r.number()), HeardEpoch: r.number(), SecretCheck: r.number(), Hears: r.number(), Silent: r.number(),
	}
	u.Lane = r.IntN(u.Lanes)
	for range r.IntN(4) {
		s := Section{Shape: r.shape(), Life: r.Uint32N(MaxLife + 1)}
		around, plain := crdt.Slice(r.IntN(1<<31)), r.IntN(3) == 0
		for range r.IntN(20) {
			d := Delta{Key: r.key()}
			if plain {
				d.Cells = []crdt.Cell{{Slice: around, Charges: 1 + r.number()>>1}}
			} else {
				d.Flags, d.Cells = Flags(r.IntN(256)), r.cells(around)
			}
			if s.Shape.Bucket() {
				d.Carry = r.carry(around)
			}
			if !plain {
				d.Until, d.Heard = r.until(), r.heard(around)
			}
			if r.IntN(3) == 0 {
				d.Demand = r.demand()
			}
			s.Deltas = append(s.Deltas, d)
		}
		u.Sections = append(u.Sections, s)
	}
	return u
}

// heard is a slice that totals were heard in: mostly one near others, or none.
func (r frames) heard(around crdt.Slice) crdt.Slice {
	switch r.IntN(6) {
	case 0:
		return 0
	case 1:
		return [...]crdt.Slice{maxSlice, -maxSlice, 1, -1}[r.IntN(4)]
	}
	return around - crdt.Slice(r.IntN(50))
}

// float is zero, or of any size that frames may have.
func (r frames) float() float32 {
	if r.IntN(4) == 0 {
		return 0
	}
	return float32(math.Ldexp(r.Float64(), r.IntN(65)))
}

// demand is not all zero, which would read as none.
func (r frames) demand() *Demand {
	return &Demand{Fast: r.float(), Mid: r.float(), Slow: r.float(), Window: 1 + r.float()/2, Kept: r.float(), Since: r.float(), KeptSpent: r.float()}
}

func (r frames) totals(around crdt.Slice) Totals {
	var t Totals
	if r.IntN(3) > 0 {
		t.Others = r.cells(around)
	}
	if r.IntN(3) > 0 {
		t.Peers = r.cells(around)
	}
	if r.IntN(4) == 0 {
		t.Own = r.cells(around)
	}
	if r.IntN(3) == 0 {
		t.Carry = r.carry(around)
	}
	t.Until = r.until()
	if r.IntN(3) == 0 {
		t.Share = &Share{Omega: 0.5, Sum: r.float(), Demand: r.float(), Window: r.float(), Unseen: r.number(), Kept: r.number(), Doubt: r.number(), Spent: r.number()}
	}
	return t
}

func (r frames) down() *Down {
	d := &Down{
		Status: StatusOK + Status(r.IntN(7)), Region: r.token(), Node: r.number(), Seq: r.number(),
		EchoSentAt: int64(r.number()), ReceivedAt: int64(r.number()), SentAt: int64(r.number()), StoreEpoch: r.number(),
		Pace: time.Duration(r.Int64N(int64(maxPace) + 1)), LiveEdges: r.IntN(maxLive + 1), LiveRegions: r.IntN(maxLive + 1), Store: r.number(),
		Mistake: Mistake(r.IntN(256)), Lanes: r.IntN(MaxLanes + 1),
		Between: time.Duration(r.Int64N(int64(maxPace) + 1)), Regions: r.IntN(maxLive + 1), Hears: r.number(), Named: uint64(uint32(r.number())),
	}
	around, silent := crdt.Slice(r.IntN(1<<31)), r.IntN(4) == 0
	for range r.IntN(30) {
		if silent {
			d.Totals = append(d.Totals, Totals{})
		} else {
			d.Totals = append(d.Totals, r.totals(around))
		}
	}
	if r.IntN(2) == 0 {
		for i := r.IntN(4); i < maxKeys; i += 1 + r.IntN(maxKeys) {
			d.Refused = append(d.Refused, uint32(i))
		}
	}
	return d
}

func (r frames) hot() *Hot {
	h := &Hot{Region: r.token(), Lane: r.IntN(MaxLanes), SentAt: math.MinInt64 + int64(r.number()), LiveRegions: r.IntN(100), Next: r.number()}
	for range r.IntN(4) {
		s := HotSection{Shape: r.shape()}
		around, silent := crdt.Slice(r.IntN(1<<31)), r.IntN(4) == 0
		for range r.IntN(10) {
			k := HotKey{Key: r.key()}
			if !silent {
				k.Totals = r.totals(around)
			}
			s.Keys = append(s.Keys, k)
		}
		h.Sections = append(h.Sections, s)
	}
	return h
}

func (r frames) live() *Live {
	return &Live{Region: r.token(), Name: "a" + r.token(), Incarnation: r.number(), Lanes: 1 + r.IntN(MaxLanes), SentAt: math.MinInt64 + int64(r.number()),
		Leaving: r.IntN(2) == 0, LiveEdges: r.IntN(100), LiveRegions: r.IntN(100), EvenEdges: r.IntN(100)}
}

func (r frames) claims() *Claims {
	c := &Claims{Region: r.token(), Lanes: 1 + r.IntN(MaxLanes), From: r.token(), Pop: r.token(), Name: r.token(), SentAt: math.MinInt64 + int64(r.number())}
	c.Lane = r.IntN(c.Lanes)
	for range r.IntN(4) {
		k := Claim{Key: r.key(), Holder: max(1, r.Uint64()), Limit: r.number(), Lasts: 1 + time.Duration(r.Int64N(int64(maxLasts))), Granted: r.number(), Want: r.number(), Regional: r.IntN(2) == 0, Bound: r.number()}
		k.Returned = min(r.number(), k.Granted)
		for left := k.Granted - k.Returned; left > 0 && r.IntN(3) > 0; {
			e := End{Cost: 1 + r.Uint64N(left), In: time.Duration(r.Int64N(int64(k.Lasts) + 1))}
			if len(k.Ends) == MaxEnds-1 {
				e.Cost = left
			}
			k.Ends, left = append(k.Ends, e), left-e.Cost
			if left > 0 && len(k.Ends) < MaxEnds && r.IntN(2) == 0 {
				k.Ends, left = append(k.Ends, End{Cost: left}), 0
			}
		}
		if sum := uint64(0); len(k.Ends) > 0 {
			for _, e := range k.Ends {
				sum += e.Cost
			}
			k.Returned = k.Granted - sum
		}
		c.Claims = append(c.Claims, k)
	}
	return c
}

func (r frames) grants() *Grants {
	g := &Grants{Region: r.token(), Lane: r.IntN(MaxLanes), Status: StatusOK, Echo: int64(r.number()), Lease: time.Duration(r.Int64N(int64(MaxLease))), Log: r.number()}
	for range r.IntN(4) {
		g.Grants = append(g.Grants, Grant{Key: r.key(), Holder: max(1, r.Uint64()), Granted: r.number(), Target: r.number(), Echo: int64(r.number()), Flags: GrantFlags(r.IntN(int(allGrantFlags) + 1)), Home: r.token()})
	}
	return g
}

func (r frames) snap() *Snap {
	s := &Snap{Region: r.token(), Lanes: 1 + r.IntN(MaxLanes), From: r.number()}
	s.Lane = r.IntN(s.Lanes)
	return s
}
