package httpapi

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"
)

// idLength is the length of a decision's id: 48 bits of milliseconds and 80
// random bits in base 32, as a ULID has them, so that ids sort by time. Of what was
// admitted the last 20 bits are a sum over the others, by which an edge knows its own.
const idLength = 26

// crockford leaves out I, L, O and U, which people misread.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ids are those of one API, for as long as the process lives.
type ids struct {
	seed maphash.Seed

	mu    sync.Mutex // guards what follows
	spent map[string]struct{}
	order []string // of spent, a ring
	next  int
}

// mostSpent is how many ids are remembered whose cost was given back: a caller that asks
// again, as it heard no answer, does so soon.
const mostSpent = 4096

// sumChars is how many characters of an id are its sum.
const sumChars = 4

// append appends a fresh id of what was admitted. The random part comes from the
// runtime's ChaCha8, which takes no lock; ids tell decisions apart, they guard
// nothing.
func (i *ids) append(dst []byte, now time.Time) []byte {
	dst = appendID(dst, now, rand.Uint64(), rand.Uint64())
	id := dst[len(dst)-idLength:]
	i.sum(id[idLength-sumChars:], id[:idLength-sumChars])
	return dst
}

// sum writes the sum over the rest of an id.
func (i *ids) sum(dst, rest []byte) {
	h := maphash.Bytes(i.seed, rest)
	for k := range dst {
		dst[k] = crockford[h>>(5*k)&31]
	}
}

// ours says that an id was made here, of which nothing was given back yet; it is taken to
// be now.
func (i *ids) ours(id string) bool {
	if len(id) != idLength {
		return false
	}
	var sum [sumChars]byte
	i.sum(sum[:], []byte(id[:idLength-sumChars]))
	if string(sum[:]) != id[idLength-sumChars:] {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, twice := i.spent[id]; twice {
		return false
	}
	if i.spent == nil {
		i.spent = make(map[string]struct{})
	}
	if len(i.order) < mostSpent {
		i.order = append(i.order, id)
	} else {
		delete(i.spent, i.order[i.next])
		i.order[i.next], i.next = id, (i.next+1)%mostSpent
	}
	i.spent[id] = struct{}{}
	return true
}

// appendID appends an id with so many random bits: the sixteen low ones of the first, and
// all of the other.
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
