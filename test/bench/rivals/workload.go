package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// draws is how many requests are drawn beforehand: enough that a round at ten
// million a second does not come round to where it began.
const draws = 1 << 22

// workload is keys and the order in which requests ask for them.
type workload struct {
	keys    []string
	arrived string // the drawn keys, one behind the other
	width   int    // of a key, in bytes
	n       int    // keys drawn, a power of two
}

// newWorkload names n keys and draws from them, the most popular ones anywhere
// among them. drawn is a power of two. The same arguments give the same
// workload.
func newWorkload(n, drawn int, exponent float64) *workload {
	w := &workload{keys: make([]string, n), width: len(keyName(0)), n: drawn}
	for i := range w.keys {
		w.keys[i] = keyName(i)
	}
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	rank := rnd.Perm(n)
	zipf := rand.NewZipf(rnd, exponent, 1, uint64(n-1))
	var b strings.Builder
	b.Grow(drawn * w.width)
	for range drawn {
		b.WriteString(w.keys[rank[zipf.Uint64()]])
	}
	w.arrived = b.String()
	return w
}

// keyName is the key with number i: all are of one length.
func keyName(i int) string { return fmt.Sprintf("user-%08d", i) }

// at is the key of request i, which starts over where the draws end.
func (w *workload) at(i int) string {
	i &= w.n - 1
	return w.arrived[i*w.width : (i+1)*w.width]
}

// aged is the first n requests.
func (w *workload) aged(n int) []string {
	keys := make([]string, min(n, w.n))
	for i := range keys {
		keys[i] = w.at(i)
	}
	return keys
}
