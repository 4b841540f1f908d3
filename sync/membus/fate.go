package membus

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// fate is what happens to one message.
type fate struct {
	lost      bool
	reordered bool
	copies    int              // 1 or 2
	delays    [2]time.Duration // of the copies
}

// unharmed reports whether the message needs no detour.
func (f fate) unharmed() bool { return f.copies == 1 && f.delays[0] <= 0 }

// draw is the chances of one message, each in [0, 1), drawn before the link is
// looked at: so one probability can change and the other choices stay.
type draw struct {
	loss, duplicate, reorder float64
	jitter                   [2]float64
}

// fate applies a link to a draw.
func (d draw) fate(l Link) fate {
	if l.Cut || d.loss < l.Loss {
		return fate{lost: true}
	}
	f := fate{copies: 1}
	for i := range f.delays {
		f.delays[i] = l.Delay + time.Duration(d.jitter[i]*float64(l.Jitter))
	}
	if d.duplicate < l.Duplicate {
		f.copies = 2
	}
	if d.reorder < l.Reorder {
		f.reordered = true
		f.delays[0] += l.Delay + l.Jitter + time.Millisecond
	}
	return f
}

// draws are those of a message and, should it be a request, of its reply.
type draws struct{ there, back draw }

// fates draws for messages: a sequence for each of a fixed number of subjects'
// hashes, so that subjects do not disturb each other and memory has a bound.
type fates struct {
	seed uint64

	mu        sync.Mutex
	sequences [256]*rand.PCG // guarded by mu; nil until needed
}

// next is the chances of the next message on subject.
func (f *fates) next(subject string) draws {
	slot := uint64(fnv(subject) % uint32(len(f.sequences)))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sequences[slot] == nil {
		f.sequences[slot] = rand.NewPCG(f.seed, slot)
	}
	chance := func() float64 { return float64(f.sequences[slot].Uint64()>>11) / (1 << 53) }
	one := func() draw {
		return draw{loss: chance(), duplicate: chance(), reorder: chance(), jitter: [2]float64{chance(), chance()}}
	}
	return draws{there: one(), back: one()}
}

// fnv is FNV-1a, the same in every process, which maphash is not.
func fnv(s string) uint32 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return h
}

// Counts is what happened to the messages of an impaired bus.
type Counts struct {
	Messages   uint64 // publications, requests, replies
	Lost       uint64 // by chance or by a cut
	Duplicated uint64
	Reordered  uint64
	Overflowed uint64 // lost because too much was under way
}

type counters struct {
	messages, lost, duplicated, reordered, overflowed atomic.Uint64
}

func (c *counters) add(f fate) {
	c.messages.Add(1)
	if f.lost {
		c.lost.Add(1)
	}
	if f.copies == 2 {
		c.duplicated.Add(1)
	}
	if f.reordered {
		c.reordered.Add(1)
	}
}

func (c *counters) read() Counts {
	return Counts{
		Messages:   c.messages.Load(),
		Lost:       c.lost.Load(),
		Duplicated: c.duplicated.Load(),
		Reordered:  c.reordered.Load(),
		Overflowed: c.overflowed.Load(),
	}
}
