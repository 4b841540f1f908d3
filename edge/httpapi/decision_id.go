package httpapi

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// idLength is the length of a decision's id: 48 bits of milliseconds and 80
// random bits in base 32, as a ULID has them, so that ids sort by time. Of what was
// admitted under strict limits the last 62 bits are no random ones: 42 of the microseconds
// that the machine ran until its rights were spent, by a clock that nobody sets, and a sum over
// all others and what was charged, by which an edge knows what it admitted.
const idLength = 26

// crockford leaves out I, L, O and U, which people misread.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ids are those of one API, for as long as the process lives.
type ids struct {
	seed     maphash.Seed
	spent    done // strict rights that were given back
	released done // slots of concurrency limits that were
}

// done are ids for which something was done that is to be done once.
type done struct {
	mu    sync.Mutex       // guards what follows
	until map[string]int64 // until when what the id was charged may count, ns
	order []string         // of those, a ring
	next  int
}

// mostSpent is how many ids are remembered whose cost was given back. Where all of them
// may count still, no other is taken for one of this edge's: what is given back for it is
// free when its window ends. Slots are released all the same, as nobody else would before
// their leases end.
const mostSpent = 1 << 16

// once takes an id, unless it was taken before; room says that it is remembered. Both times
// are by one clock, in ns.
func (d *done) once(id string, until, now int64) (first, room bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, twice := d.until[id]; twice {
		return false, true
	}
	if d.until == nil {
		d.until = make(map[string]int64)
	}
	if len(d.order) < mostSpent {
		d.order = append(d.order, id)
	} else {
		if d.until[d.order[d.next]] > now {
			return true, false
		}
		delete(d.until, d.order[d.next])
		d.order[d.next], d.next = id, (d.next+1)%mostSpent
	}
	d.until[id] = until
	return true, true
}

// undo forgets an id that was just taken: nothing came of it.
func (d *done) undo(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.until, id)
}

// sumChars is how many characters of an id are its sum.
const sumChars = 4

// spentBits is of how many bits of microseconds an id tells when its rights were spent: they come
// around in 50 days.
const spentBits = 42

// append appends a fresh id that proves a digest, of what was charged at an instant of the machine's
// run; clock is what the limiter's shows now.
func (i *ids) append(dst []byte, spent time.Duration, clock time.Time, proves uint64) []byte {
	const sumBits, all = 5 * sumChars, 1<<spentBits - 1
	ran := uint64(spent.Microseconds()) & all
	dst = appendID(dst, clock, rand.Uint64(), rand.Uint64()&^(all<<sumBits)|ran<<sumBits)
	id := dst[len(dst)-idLength:]
	i.sum(id[idLength-sumChars:], id[:idLength-sumChars], proves)
	return dst
}

// digest is of what a request is charged to: each rule that applies, its cost, and its
// keys, of each reading of the request's path. It is not 0.
func (i *ids) digest(req *limit.Request) uint64 {
	req.Rules()
	text := req.Scratch()
	req.Readings(func(rule *limit.Rule) {
		from := len(text)
		text = append(append(text, rule.Name...), 0)
		keyed, ok := rule.AppendKey(text, req)
		if text = keyed; !ok {
			text = text[:from]
			return
		}
		text = binary.BigEndian.AppendUint64(text, rule.CostOf(req))
	})
	req.KeepScratch(text)
	return max(1, maphash.Bytes(i.seed, text))
}

// sum writes the sum over the rest of an id and what it proves.
func (i *ids) sum(dst, rest []byte, proves uint64) {
	h := maphash.Bytes(i.seed, rest) ^ maphash.Comparable(i.seed, proves)
	for k := range dst {
		dst[k] = crockford[h>>(5*k)&31]
	}
}

// spentAt is when rights were spent for an id, by the clock that they go by, which shows boot now, if
// it was made here and proves a digest, what was charged for it counts still in all strict limits of the
// rules, and nothing was given back for it yet; else 0. It is taken to be now, when the limiter's clock
// shows so much: that may have been set since, as rights do not go by it.
func (i *ids) spentAt(id string, proves uint64, rules []*limit.Rule, boot time.Duration, clock time.Time) time.Duration {
	if !isID(id) {
		return 0
	}
	var sum [sumChars]byte
	i.sum(sum[:], []byte(id[:idLength-sumChars]), proves)
	if string(sum[:]) != id[idLength-sumChars:] {
		return 0
	}
	spent := ranAt(id, boot)
	age := boot - spent
	longest := time.Duration(0)
	for _, rule := range inForce(rules) {
		for _, rate := range rule.Rates {
			if rate.Consistency != limit.Strict {
				continue
			}
			if age >= rate.Window || left(rate, madeAt(id), clock.UnixNano()) {
				return 0 // it is free already, and what is in use is others'
			}
			longest = max(longest, rate.Window)
		}
	}
	if first, room := i.spent.once(id, int64(spent+longest), int64(boot)); !first || !room {
		return 0
	}
	return max(1, spent)
}

// left says that what a strict limit was charged at an instant has left its window: exactly
// so, as slices go on for some time.
func left(rate *limit.Rate, made, now int64) bool {
	if rate.Labelled() {
		return rate.SliceAt(made) < rate.Reach(now)
	}
	return now-made >= int64(rate.Window)
}

// releases says that no slot was released yet for an id, which may be another edge's; it is
// taken to be now.
func (i *ids) releases(id string, rules []*limit.Rule, now time.Time) bool {
	until := int64(0)
	for _, rule := range inForce(rules) {
		for _, rate := range rule.Rates {
			until = max(until, min(madeAt(id), now.UnixNano())+int64(rate.Window+2*rate.Width))
		}
	}
	first, _ := i.released.once(id, until, now.UnixNano())
	return first
}

// isID says whether a text, in upper case, can be the id of a decision.
func isID(text string) bool {
	return len(text) == idLength && strings.Trim(text, crockford) == ""
}

// madeAt is when an id was made, to the millisecond, in ns since 1970.
func madeAt(id string) int64 {
	var millis uint64
	for _, c := range []byte(id[:10]) { // 50 bits, of which the first two are none
		millis = millis<<5 | uint64(strings.IndexByte(crockford, c))
	}
	return int64(millis) * int64(time.Millisecond)
}

// ranAt is how long the machine ran when rights were spent for an id that proves something, to the
// microsecond, the last time that it may have been by boot.
func ranAt(id string, boot time.Duration) time.Duration {
	var bits uint64
	for _, c := range []byte(id[:idLength-sumChars]) { // the first run over
		bits = bits<<5 | uint64(strings.IndexByte(crockford, c))
	}
	now := uint64(boot.Microseconds())
	return time.Duration(now-(now-bits)&(1<<spentBits-1)) * time.Microsecond
}

// appendID appends an id with so many random bits: the sixteen low ones of the first, and
// all of the other. They come from the runtime's ChaCha8, which takes no lock; ids tell
// decisions apart, they guard nothing.
func appendID(dst []byte, now time.Time, hi, lo uint64) []byte {
	hi = uint64(now.UnixMilli())<<16 | hi&0xffff
	var id [idLength]byte
	for i := idLength - 1; i >= 0; i-- {
		id[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return append(dst, id[:]...)
}
