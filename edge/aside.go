package edge

import (
	"time"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/edge/limit"
)

// aside is what a bucket would hold if it had but this side's part of the refill, while
// somebody is cut off: each side has a part of the capacity by what is kept for the
// other, but what is known of drains for both. Without it each would admit the whole
// refill for as long as they do not hear of each other.
type aside struct {
	at    int64 // when it was last brought up to date; 0: nobody is cut off
	alone bool  // it is this edge that is: its own requests count alone
	level float64
	spent uint64     // here, by then
	from  crdt.Slice // and elsewhere since,
	heard uint64     // so much
}

// turn is aside some time later, for a share as it stands then, of which it fills in what
// is left by that; est is the level as it drains for both.
func (a aside) turn(rate *limit.Rate, p *limit.Share, b *block, est uint64, now int64) aside {
	healed := !p.Alone && p.Less == 0
	if !rate.Bucket() || healed && (a.at == 0 || a.alone) {
		return aside{}
	}
	capacity, kept := float64(max(1, rate.Ceiling)), p.Less
	part := 1 - kept/capacity
	if p.Alone {
		part = p.Weight * p.Omega
	}
	part = max(0, part) // what is kept may be of a limit that was larger
	next := aside{at: now, alone: p.Alone, spent: b.share.spent, from: rate.SliceAt(now - int64(rate.Window/2))}
	if !p.Alone {
		next.heard = since(&b.others, next.from)
	}
	switch passed := time.Duration(now - a.at); {
	case a.at != 0 && a.alone == p.Alone && passed >= 0 && passed <= rate.Window:
		next.level = max(0, a.level+float64(crdt.SatSub(next.spent, a.spent))-part*float64(rate.Drain.Refill)*float64(passed)/float64(max(1, rate.Drain.Per)))
		if !p.Alone {
			next.level += float64(crdt.SatSub(since(&b.others, a.from), a.heard))
		}
	case p.Alone:
		next.level = max(p.Mine, part*float64(est))
	default:
		next.level = float64(est) + (1-part)*(capacity-float64(est))
	}
	if p.Alone {
		next.level = min(next.level, capacity)
		p.Mine = max(p.Mine, next.level)
	} else {
		next.level = min(max(kept, next.level), capacity+kept)
		p.Less = max(0, next.level-float64(est))
	}
	if healed && p.Less == 0 { // what all know tells more
		return aside{}
	}
	return next
}

// since is what was charged from a slice on.
func since(v *crdt.Vector, from crdt.Slice) (sum uint64) {
	for i := v.Len() - 1; i >= 0; i-- {
		c := v.At(i)
		if c.Slice < from {
			break
		}
		sum = crdt.SatAdd(sum, c.Net())
	}
	return sum
}
