package deltasync

import (
	"math"
	"math/bits"
)

// Sketch estimates how many different keys there were, to about an eighth: a HyperLogLog of 64 registers
// (Flajolet and others, 2007). It is merged by maxima, so keys that several have seen count once.
// The zero value has seen none.
type Sketch [64]byte

// Add has it see a key. Names of keys are hashes under the cluster's secret: nobody can aim them.
func (s *Sketch) Add(key Key) {
	h := mix(uint64(key)) // names of one rate have bits in common
	at := h >> 58
	s[at] = max(s[at], byte(bits.LeadingZeros64(h<<6|1<<5)+1))
}

// Merge has it have seen what another has.
func (s *Sketch) Merge(other *Sketch) {
	for i := range s {
		s[i] = max(s[i], other[i])
	}
}

// Estimate is how many keys it saw, about.
func (s *Sketch) Estimate() float64 {
	const m = float64(len(s))
	sum, zeros := 0.0, 0
	for _, r := range s {
		sum += math.Ldexp(1, -int(r))
		if r == 0 {
			zeros++
		}
	}
	if e := 0.709 * m * m / sum; e > 2.5*m || zeros == 0 {
		return e
	}
	return m * math.Log(m/float64(zeros)) // while few registers are in use
}

// Bytes are its registers; nil: it has seen none.
func (s *Sketch) Bytes() []byte {
	if *s == (Sketch{}) {
		return nil
	}
	return s[:]
}

// SketchOf reads registers; what is none has seen none.
func SketchOf(b []byte) (s Sketch) {
	if len(b) == len(s) {
		copy(s[:], b)
	}
	return s
}
