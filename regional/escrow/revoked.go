package escrow

import (
	"slices"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// Revoked is whose rights are taken back: of one key, or with Key 0 of all.
type Revoked struct {
	Node uint64 // an edge's, or a PoP's as deltasync.PopOf has it
	Key  deltasync.Key
}

// Of says that the rights are whose that are taken back.
func (r Revoked) Of(node uint64, key deltasync.Key) bool {
	return (r.Node == node || r.Node == deltasync.PopOf(node)) && (r.Key == 0 || r.Key == key)
}

// MostRevoked bounds what is remembered of a lane.
const MostRevoked = 256

// bars says that an edge's rights in a key were taken back.
func (l *lane) bars(node uint64, key deltasync.Key) bool {
	return slices.ContainsFunc(l.barred, func(r Revoked) bool { return r.Of(node, key) })
}

// hearBarred takes in what an edge returned whose rights are not renewed: they were taken back. It is answered
// nothing, and by what it says its lease is not renewed: what it still holds is free when
// that has ended and what it spent has left the window, as if it was silent.
func (a *Authority) hearBarred(d *deposit, k *deltasync.Claim, c *deltasync.Claims, now time.Duration) {
	a.lapse(d, now)
	h := d.find(k.Holder)
	if h == nil || h.Node != deltasync.NodeID(c.From, c.Pop, c.Name) || h.echo > c.SentAt {
		return
	}
	if k.Returned > h.Returned && k.Returned <= h.Granted {
		a.stats.returned.Add(k.Returned - h.Returned)
		h.Returned = k.Returned
	}
	h.Region, h.want, h.echo = c.From, 0, c.SentAt // so that it is asked to return what others need
}
