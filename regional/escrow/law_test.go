package escrow_test

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
)

const (
	someKey deltasync.Key = 0x1234_5678_9abc_def1
	window                = 2 * time.Second
	lease                 = 3 * time.Second
)

// holder is an edge, as simple as one may be: it keeps what Claims wants kept, and
// spends what it holds.
type holder struct {
	name              string
	life, log         uint64
	granted, returned uint64
	until             time.Duration
	spent             []time.Duration // spends that are in the window
	want              uint64
	cut               bool
}

func (h *holder) held(now time.Duration) uint64 {
	if now >= h.until {
		return 0
	}
	return h.granted - h.returned
}

// used is how many rights are spent.
func (h *holder) used(now time.Duration) uint64 {
	for len(h.spent) > 0 && now-h.spent[0] >= window {
		h.spent = h.spent[1:]
	}
	return uint64(len(h.spent))
}

// lab is authorities over one log, edges, and a network that loses, doubles and delays.
type lab struct {
	t           *testing.T
	rnd         *rand.Rand
	now         time.Duration
	log         *revocable
	authorities []*escrow.Authority
	edges       []*holder
	limit       uint64
	events      agenda
	lives       uint64
	room        int             // for keys; 0: enough
	spends      []time.Duration // of all, in the window
	admitted    int
}

// revocable is a log in which an operator takes rights back.
type revocable struct {
	*memstore.Rights
	revoked []escrow.Revoked
}

func (l *revocable) Take(ctx context.Context, lane int, token uint64, regions []string) (escrow.Origin, error) {
	origin, err := l.Rights.Take(ctx, lane, token, regions)
	origin.Revoked = slices.Clone(l.revoked)
	return origin, err
}

// revoke takes back the rights of some alone, and fences off whoever has the lane.
func (l *revocable) revoke(t testing.TB, token uint64, who ...escrow.Revoked) {
	t.Helper()
	l.revoked = who
	if _, err := l.Take(t.Context(), 0, token, nil); err != nil {
		t.Fatal(err)
	}
}

type agenda []event
type event struct {
	at time.Duration
	do func()
}

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func newLab(t *testing.T, seed uint64) *lab {
	b := &lab{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: time.Hour, limit: 1 + uint64(seed%40)}
	b.log = &revocable{Rights: memstore.NewRights(time.Time{}, b.wall)}
	if seed%4 == 0 {
		b.room = 1
	}
	for range 1 + seed%3/2 { // two take the lane from each other, and have all leases begin anew
		b.authorities = append(b.authorities, b.authority())
	}
	for i := range 5 {
		b.edges = append(b.edges, &holder{name: fmt.Sprint("e", i), life: b.life()})
	}
	return b
}

func (b *lab) wall() time.Time { return time.Unix(0, int64(b.now)) }

func (b *lab) life() uint64 { b.lives++; return b.lives }

func (b *lab) authority() *escrow.Authority {
	a, err := escrow.New(escrow.Config{
		Region: "eu", Lanes: 1, Log: b.log, Lease: lease,
		Boot: func() time.Duration { return b.now }, Token: b.life, Edges: func() int { return 5 }, MaxKeys: b.room,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// send has something arrive, or not, or twice, sooner or much later.
func (b *lab) send(cut bool, deliver func()) {
	if cut || b.rnd.IntN(8) == 0 {
		return
	}
	for range 1 + b.rnd.IntN(8)/7 {
		delay := time.Duration(b.rnd.ExpFloat64() * float64(60*time.Millisecond))
		if b.rnd.IntN(40) == 0 {
			delay *= 100 // longer than any lease
		}
		heap.Push(&b.events, event{b.now + delay, deliver})
	}
}

func (b *lab) claim(h *holder) {
	c := deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "p", Name: h.name, SentAt: int64(b.now), Claims: []deltasync.Claim{{
		Key: someKey, Holder: h.life, Limit: b.limit, Lasts: window, Granted: h.granted, Returned: h.returned, Want: h.want,
	}}}
	b.send(h.cut, func() {
		a := b.authorities[b.rnd.IntN(len(b.authorities))]
		if reply := a.Handle(context.Background(), &c); reply != nil {
			b.send(h.cut, func() { b.hear(h, reply) })
		}
	})
}

func (b *lab) hear(h *holder, frame []byte) {
	var g deltasync.Grants
	if err := g.UnmarshalBinary(frame); err != nil {
		b.t.Fatal(err)
	}
	for _, k := range g.Grants {
		if k.Holder != h.life {
			continue
		}
		said := time.Duration(g.Echo)
		if said == 0 {
			said = time.Duration(k.Echo)
		}
		if b.now-said >= g.Lease {
			continue
		}
		if k.Flags&deltasync.GrantVoid != 0 {
			h.life, h.granted, h.returned, h.until = b.life(), 0, 0, 0
			continue
		}
		if g.Log != h.log && h.granted > 0 && b.now >= h.until {
			h.life, h.granted, h.returned, h.until = b.life(), 0, 0, 0
			continue
		}
		h.log, h.granted = g.Log, max(h.granted, k.Granted)
		if g.Echo != 0 {
			h.until = max(h.until, said+g.Lease)
		}
		if k.Flags&deltasync.GrantRecall != 0 {
			b.yield(h, k.Target)
		}
	}
}

// yield returns what is above a target and not spent.
func (b *lab) yield(h *holder, keep uint64) {
	if held := h.held(b.now); held > max(keep, h.used(b.now)) {
		h.returned += held - max(keep, h.used(b.now))
		b.claim(h)
	}
}

// spend has an edge admit a request, if it has a right for it: then no window of all
// edges together has more than the limit.
func (b *lab) spend(h *holder, seed uint64) {
	if h.used(b.now)+1 > h.held(b.now) {
		b.claim(h)
		return
	}
	h.spent = append(h.spent, b.now)
	b.spends = append(b.spends, b.now)
	for b.now-b.spends[0] >= window {
		b.spends = b.spends[1:]
	}
	if b.admitted++; uint64(len(b.spends)) > b.limit {
		b.t.Fatalf("seed %d: at %v %d were admitted in a window, want at most %d", seed, b.now-time.Hour, len(b.spends), b.limit)
	}
}

// leave has an edge take its leave of the key: it returns what it did not spend, and says when the rest is
// free, more than once. Who comes after it is another.
func (b *lab) leave(h *holder) {
	left, used := h.held(b.now), h.used(b.now)
	h.returned += crdt.SatSub(left, used)
	k := deltasync.Claim{Key: someKey, Holder: h.life, Limit: b.limit, Lasts: window, Granted: h.granted, Returned: h.returned}
	for left, i := min(left, used), len(h.spent)-1; left > 0; left, i = left-1, i-1 { // the last are its own
		if n := len(k.Ends); n > 0 && (n == deltasync.MaxEnds || b.rnd.IntN(2) == 0) {
			k.Ends[n-1].Cost++
			continue
		}
		k.Ends = append(k.Ends, deltasync.End{Cost: 1, In: h.spent[i] + window - b.now})
	}
	for range 1 + b.rnd.IntN(3) {
		c := deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "p", Name: h.name, SentAt: int64(b.now), Claims: []deltasync.Claim{k}}
		b.send(h.cut, func() { b.authorities[b.rnd.IntN(len(b.authorities))].Handle(context.Background(), &c) })
	}
	*h = holder{name: h.name, life: b.life(), cut: h.cut}
}

// others claims rights of another key, for which there may be room only once the key is left
// to the log.
func (b *lab) others() {
	c := deltasync.Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "p", Name: "other", SentAt: int64(b.now), Claims: []deltasync.Claim{{
		Key: someKey + deltasync.Key(1+b.rnd.IntN(3)), Holder: b.life(), Limit: 1, Lasts: window, Want: 1,
	}}}
	b.send(false, func() { b.authorities[b.rnd.IntN(len(b.authorities))].Handle(context.Background(), &c) })
}

// Whatever is lost, late, doubled or cut, whoever dies, leaves, forgets or believes to own the
// lane, and though the log is wiped, keys are left to it for want of room, or rights are taken
// back and given again, no window has more than the limit. When all that is over, the limit is used.
func TestNeverOver(t *testing.T) {
	for seed := range uint64(200) {
		b := newLab(t, seed)
		const calm = 40 * time.Second
		end := b.now + 80*time.Second
		settled := 0
		calmed := false
		for b.now < end {
			faults := end-b.now > calm
			if !faults && !calmed {
				calmed = true
				b.log.revoke(t, b.life())
			}
			b.now += time.Duration(b.rnd.ExpFloat64() * float64(10*time.Millisecond))
			for len(b.events) > 0 && b.events[0].at <= b.now {
				heap.Pop(&b.events).(event).do()
			}
			for _, a := range b.authorities {
				for _, p := range a.Pushes() {
					for _, h := range b.edges {
						b.send(h.cut, func() { b.hear(h, p.Payload) })
					}
				}
			}
			h := b.edges[b.rnd.IntN(len(b.edges))]
			switch r := b.rnd.IntN(400); {
			case r < 30:
				h.want = b.rnd.Uint64N(b.limit + 2)
				b.claim(h)
			case !faults && (len(b.authorities) > 1 || h.cut):
				b.authorities, h.cut = b.authorities[:1], false
			case r == 30 && faults: // it dies, and comes back knowing nothing
				*h = holder{name: h.name, life: b.life()}
			case r == 31 && faults: // it forgets the key
				h.life, h.granted, h.returned, h.until, h.spent = b.life(), 0, 0, 0, nil
			case r == 32 && faults:
				h.cut = !h.cut
			case r == 33 && faults && seed%3 > 0:
				b.authorities[b.rnd.IntN(len(b.authorities))] = b.authority()
			case r == 34 && faults && b.rnd.IntN(8) == 0:
				b.log.Wipe()
			case r == 35 && faults:
				b.yield(h, 0)
			case r == 39 && faults:
				b.leave(h)
			case r == 37 && faults && b.room > 0:
				b.others()
			case r == 38 && seed%5 == 0:
				var who []escrow.Revoked
				if faults && b.rnd.IntN(2) == 0 {
					who = []escrow.Revoked{{Node: deltasync.NodeID("eu", "p", h.name)}}
				}
				b.log.revoke(t, b.life(), who...)
			case r == 36:
				for _, a := range b.authorities {
					if err := a.Keep(context.Background(), func(int) bool { return true }); err != nil {
						t.Fatal(err)
					}
				}
			default:
				before := b.admitted
				b.spend(h, seed)
				if end-b.now < calm/2 {
					settled += b.admitted - before
				}
			}
		}
		if most := int(b.limit) * int(calm/2/window); settled < most/2 {
			t.Errorf("seed %d: %d were admitted in the %v after all faults, of %d", seed, settled, calm/2, most)
		}
	}
}
