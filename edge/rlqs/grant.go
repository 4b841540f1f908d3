package rlqs

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// settleAfter is how long after a grant has ended a report must come to say what was left
// of it. Of that half is for the message that ended it, half for the report: one that comes
// later than that was sent when the data plane could spend no more of the grant.
const settleAfter = time.Second

// maxGrants bounds the grants of one subscription that are not settled: who has so many
// does not report, and gets no more.
const maxGrants = 16

// grant is tokens that a data plane was assigned. They are charged when they are granted.
type grant struct {
	tokens  uint64 // granted
	left    uint64 // that no report has claimed
	unit    uint64 // what one token was charged, unless a rule bounds that
	charges []limit.Charge
	ends    time.Time // when it expires, or was replaced
}

// byPrice are its charges by what a token was charged, with each what was borrowed for it.
func (g *grant) byPrice() map[uint64][]limit.Charge {
	by := make(map[uint64][]limit.Charge, 1)
	for _, c := range g.charges {
		own := c
		if i := slices.IndexFunc(g.charges, func(o limit.Charge) bool { return o.Borrower == 0 && o.Counter == c.Borrower }); c.Borrower != 0 && i >= 0 {
			own = g.charges[i]
		}
		price := own.Rule.Bounded(g.unit)
		by[price] = append(by[price], c)
	}
	return by
}

// grants are those of a subscription that are not settled, the oldest first.
type grants []grant

// claim takes tokens that were reported as spent, off the oldest grants first, and says
// how many nobody was granted. Which grant they were spent from is not known and does not
// matter: when all have ended, what is left of them is what was granted and not spent, and
// until then no more is left of an older one than there truly is.
func (g grants) claim(spent uint64) (beyond uint64) {
	for i := range g {
		take := min(g[i].left, spent)
		g[i].left -= take
		spent -= take
	}
	return spent
}

// settle takes out what a report that comes now says is over, of the first so many, which
// its data plane was told of; those have their left to be given back.
func (g *grants) settle(now time.Time, had int) (over grants) {
	n := 0
	for n < had && now.Sub((*g)[n].ends) >= settleAfter {
		n++
	}
	over = slices.Clone((*g)[:n])
	*g = slices.Delete(*g, 0, n)
	return over
}

// replace ends the last of them at now: a data plane has one assignment of a bucket at a
// time.
func (g grants) replace(now time.Time) {
	if n := len(g); n > 0 && now.Before(g[n-1].ends) {
		g[n-1].ends = now
	}
}

// left is what nobody has claimed of all of them.
func (g grants) left() (sum uint64) {
	for i := range g {
		sum += g[i].left
	}
	return sum
}
