package httpapi

import (
	"math/rand/v2"
	"time"
)

// idLength is the length of a decision's id: 48 bits of milliseconds and 80
// random bits in base 32, as a ULID has them, so that ids sort by time.
const idLength = 26

// crockford leaves out I, L, O and U, which people misread.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// appendID appends a fresh decision id. The random part comes from the
// runtime's ChaCha8, which takes no lock; ids tell decisions apart, they guard
// nothing.
func appendID(dst []byte, now time.Time) []byte {
	hi := uint64(now.UnixMilli())<<16 | rand.Uint64()&0xffff
	lo := rand.Uint64()
	var id [idLength]byte
	for i := idLength - 1; i >= 0; i-- {
		id[i] = crockford[lo&31]
		lo = lo>>5 | hi<<59
		hi >>= 5
	}
	return append(dst, id[:]...)
}
