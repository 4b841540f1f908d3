package escrow

import "time"

// lacks says that this authority, or one before it, may have granted rights of which the log
// says nothing: it was not there, or lost something.
func (a *Authority) lacks(l *lane, lasts time.Duration, now time.Duration) bool {
	return now-l.since <= spare(a.cfg.Lease+lasts)
}

// quarantined says that rights may be held of which nothing is known here: as the log lacks
// them, or another region granted them that draws other homes.
func (a *Authority) quarantined(l *lane, d *deposit, lasts time.Duration, now time.Duration) bool {
	unfit := time.Duration(a.unfit.Load())
	return a.lacks(l, lasts, now) || unfit != 0 && !d.regional && now-unfit <= spare(a.cfg.Lease+lasts)
}

// Unsettle is to be called as long as a peer says that this region is none of its: that one,
// and its edges, take another for the authority over keys that are drawn to this one.
func (a *Authority) Unsettle() { a.unfit.Store(max(1, int64(a.cfg.Boot()))) }
