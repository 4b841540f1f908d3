package escrow

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/crdt"
)

// stays is how much of what a holder has it cannot return by now: what is spent of it, as it said last;
// of one whose lease is over, all.
func (h *holding) stays(lease, now time.Duration) uint64 {
	if now-h.heard > spare(lease) {
		return h.Out()
	}
	return min(h.bound, h.Out())
}

// over says that a holder neither wants rights any more nor has some to return: until they lapse nobody
// has a use for them.
func (h *holding) over(lease, now time.Duration) bool {
	return now-h.heard > spare(lease) || h.want == 0 && h.Out() > 0 && h.bound >= h.Out()
}

// scarce is how many rights there must be for each holder, so that each has a part: of
// fewer each gets what it asks for while there are some, and returns what it does not
// use when somebody else asks.
const scarce = 4

// enough is how much of its part is enough for a holder: parts go up and down by
// chance, and what moves is nobody's on its way.
const enough = 0.8

// claimant is a holder among whom the limit is cut into parts.
type claimant struct {
	at           int // in deposit.holdings
	wants, stays float64
}

// part is what a holder gets of the limit, and what would be fair: less, of who cannot return as much by
// now, and more, of those who wait for that.
type part struct{ now, fair float64 }

// target is how much of what it has is left to the holder.
func (p part) target() float64 { return min(p.now, p.fair) }

// parts is what each holder's part of the limit is: what it wants and an equal part of
// what nobody wants, some of which stays here for whoever comes; or, where more is
// wanted than there is, in proportion; of a scarce limit what it wants, up to a level. Who
// is over has what he has, and who cannot return what is above his part has that: were parts of
// the whole limit, they were more than there is, and who came last had none of them. Who
// claims a smaller limit than the others has as much less of it.
func (d *deposit) parts(limit uint64, edges int, lease, now time.Duration) (parts []part, isScarce bool) {
	parts = make([]part, len(d.holdings))
	among := make([]claimant, 0, len(d.holdings))
	gone, sum, active := uint64(0), 0.0, 0
	for i, h := range d.holdings {
		if h.over(lease, now) {
			has := float64(h.Out())
			parts[i], gone = part{has, has}, crdt.SatAdd(gone, h.Out())
			continue
		}
		stays := min(h.stays(lease, now), limit)
		c := claimant{at: i, wants: float64(max(min(h.wants(now), limit), stays)), stays: float64(stays)}
		if among = append(among, c); c.wants > 0 {
			sum, active = sum+c.wants, active+1
		}
	}
	left := float64(crdt.SatSub(limit, gone))
	isScarce = left < float64(scarce*len(among))
	for _, c := range among {
		if c.wants > 0 {
			parts[c.at].fair = c.wants + (left-sum)/float64(max(active+1, edges))
		}
	}
	if sum > left {
		share := divide(among, left, isScarce)
		for _, c := range among {
			parts[c.at].fair = share(c.wants)
		}
	}
	for _, c := range among {
		p, h := &parts[c.at], d.holdings[c.at]
		if p.now = p.fair; h.Limit < limit { // its limit was lowered, or theirs raised, as it will hear
			p.now *= float64(h.Limit) / float64(limit)
			p.fair = p.now
		}
	}
	if sum > left {
		settle(parts, among, left, isScarce)
	}
	return parts, isScarce
}

// settle has who cannot return what it has above its part have that, and the others the rest.
func settle(parts []part, among []claimant, left float64, isScarce bool) {
	for range mostCuts {
		kept := among[:0]
		for _, c := range among {
			if parts[c.at].now < c.stays {
				parts[c.at].now, left = c.stays, max(0, left-c.stays)
				continue
			}
			kept = append(kept, c)
		}
		if len(kept) == len(among) {
			return
		}
		among = kept
		share := divide(among, left, isScarce)
		for _, c := range among {
			parts[c.at].now = min(parts[c.at].now, share(c.wants))
		}
	}
}

// divide parts what there is among those who want more: in proportion, or of a scarce limit up to a level.
func divide(among []claimant, left float64, isScarce bool) (share func(wants float64) float64) {
	if isScarce {
		return level(among, left)
	}
	return proportion(among, left)
}

// mostCuts bounds how often it is seen who cannot: a few do, unless somebody means ill.
const mostCuts = 32

// proportion has each get as much as it wants, times what there is of that.
func proportion(among []claimant, left float64) func(wants float64) float64 {
	sum := 0.0
	for _, c := range among {
		sum += c.wants
	}
	return func(wants float64) float64 {
		if wants == 0 {
			return 0
		}
		return min(wants, wants*left/sum)
	}
}

// level has each get as much as it wants, but none more than a level, so that who wants less has all of
// it, and the others as much as each other.
func level(among []claimant, left float64) func(wants float64) float64 {
	wants := make([]float64, 0, len(among))
	for _, c := range among {
		if c.wants > 0 {
			wants = append(wants, c.wants)
		}
	}
	slices.Sort(wants)
	most := left
	for i, w := range wants {
		if even := left / float64(len(wants)-i); w >= even {
			most = even
			break
		}
		left -= w
	}
	return func(wants float64) float64 { return min(wants, most) }
}
