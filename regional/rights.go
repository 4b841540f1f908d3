package regional

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// HandleClaims answers an edge that claims rights in strict limits; nil: it is to ask
// again. What is no good frame is answered with a status, and no grants. It waits for the log, for Config.StoreTimeout at most.
func (a *Aggregator) HandleClaims(ctx context.Context, subject string, payload []byte) []byte {
	if a.rights == nil {
		return nil
	}
	c, status, err := a.inbox.AdmitClaims(a.clock.At(a.cfg.Now()), subject, payload)
	if err == nil {
		return a.rights.Handle(ctx, c)
	}
	if muted, is := errors.AsType[*deltasync.MutedError](err); is {
		a.cfg.Logger.Warn("sender muted", "subject", subject, "for", muted.For, "err", muted.Err)
	} else {
		a.cfg.Logger.Debug("claims refused", "subject", subject, "err", err)
	}
	b, err := (&deltasync.Grants{Region: a.cfg.Region, Status: status}).AppendBinary(nil)
	if err != nil { // our own bug
		a.cfg.Logger.Error("refusal of claims dropped", "err", err)
		return nil
	}
	return b
}

// KeepRights has this aggregator be the authority over strict limits in the lanes that
// it owns. Call it every Config.Interval.
func (a *Aggregator) KeepRights(ctx context.Context) error {
	if a.rights == nil {
		return nil
	}
	return a.rights.Keep(ctx, a.Owns)
}

// noteNamed takes note of since when a peer names this region, as its reply in a lane says: until then
// it granted rights in this one's place. Where that was not always, who has another lane there may
// have been told so later: each is asked.
func (a *Aggregator) noteNamed(lane, j int, down *deltasync.Down) {
	named := escrow.Forever
	switch {
	case a.rights == nil:
		return
	case down.Mistake == deltasync.MistakePeers:
		named = 0
	case down.Named == 0: // it does not have the lane, grants no rights, or is of a build before
		if down.Status == deltasync.StatusOK {
			a.rights.IsNamedBy(lane, a.cfg.Peers[j])
		}
		return
	case down.Named > 1:
		named = max(1, time.Duration(down.Named-2)*time.Second)
	}
	a.rights.NamedBy(lane, a.cfg.Peers[j], named)
}

// named is what a region is told of that, of a lane.
func (a *Aggregator) named(lane int, region string) uint64 {
	if a.rights == nil || !a.Owns(lane) {
		return 0
	}
	switch ago, known := a.rights.Naming(lane, region); {
	case !known:
		return 0
	case ago >= escrow.Forever:
		return 1
	default:
		return 2 + uint64(ago/time.Second)
	}
}

// Grants is what edges are to hear of their rights unasked. Call it every Config.Urgent.
func (a *Aggregator) Grants() []escrow.Push {
	if a.rights == nil {
		return nil
	}
	return a.rights.Pushes()
}

var (
	rightsKeysDesc  = prometheus.NewDesc("spillgate_rights_keys", "Keys of strict limits of which this aggregator knows who holds rights.", nil, nil)
	rightsShortDesc = prometheus.NewDesc("spillgate_rights_short_keys", "Of these, those of which some edge wants more rights than it has.", nil, nil)
	rightsHeldDesc  = prometheus.NewDesc("spillgate_rights_withheld_seconds", "For how long from now no new rights are granted of some keys of the strict limit that lasts longest, or of one of a day where no rules are known, as somebody may hold some that this aggregator does not know of: its log of rights is new or lost something, another region did not name this one among its peers (if it has not said otherwise since, from when it does), or one was taken away. 0: all are granted.", nil, nil)
	rightsMovedDesc = prometheus.NewDesc("spillgate_rights_moved_total", "Rights in strict limits, in cost, that edges were granted, and that they returned.", []string{"way"}, nil)
	rightsFailDesc  = prometheus.NewDesc("spillgate_rights_unanswered_total", "Claims by edges that were not answered, or not with rights, by reason: void (the holder's lease had ended), full (the key has as many holders as it may, or the edge or its PoP in it; void, too; or the aggregator knows as many keys as it may, and is asked for all), fenced (another aggregator has taken the lane since), failed (the log of rights did not answer), revoked (an operator has taken the edge's rights back).", []string{"reason"}, nil)
)

// rights are what an authority counted.
func (c *collector) rights(st escrow.Stats, withheld time.Duration, gauge func(*prometheus.Desc, float64, ...string), count func(*prometheus.Desc, uint64, ...string)) {
	gauge(rightsKeysDesc, float64(st.Keys))
	gauge(rightsShortDesc, float64(st.Short))
	gauge(rightsHeldDesc, withheld.Seconds())
	count(rightsMovedDesc, st.Granted, "granted")
	count(rightsMovedDesc, st.Returned, "returned")
	count(rightsFailDesc, st.Voided, "void")
	count(rightsFailDesc, st.Crowded, "full")
	count(rightsFailDesc, st.Fenced, "fenced")
	count(rightsFailDesc, st.Failed, "failed")
	count(rightsFailDesc, st.Revoked, "revoked")
}
