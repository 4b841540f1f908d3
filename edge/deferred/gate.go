package deferred

import "time"

// gate is where tenants stand whose last request one limit denied. While it is shut nobody is
// tried, and one of all once there may be room; it is open when that one has passed, until
// another is denied. So what waiting costs goes by limits, and not by the tenants that they deny.
type gate struct {
	shared bool // by several tenants
	shut   bool
	trying bool          // one is tried, as it may be shut no more
	opens  time.Time     // it is shut until then
	next   time.Time     // after the first of all tenants that were put off
	every  time.Duration // the limit lets one pass in this time

	// Who stands here is counted by rounds of retryMost, in which all who wait come: others
	// are gone, as another edge has done theirs.
	round       int
	began       time.Time // the round
	these, last int       // stand here since this round, and since the one before
}

// gate is that of a limit; or one of the lane's own.
func (l *lanes) gate(by string, of *lane, now time.Time) *gate {
	if by != "" {
		if g := l.gates[by]; g != nil {
			return g
		}
		if len(l.gates) >= mostLanes {
			l.sweep(now)
		}
		if len(l.gates) < mostLanes {
			g := &gate{shared: true}
			l.gates[by] = g
			return g
		}
	}
	if of.gate != nil && !of.gate.shared {
		return of.gate
	}
	return &gate{}
}

// bars says that nobody is to be tried.
func (g *gate) bars(now time.Time) bool {
	return g != nil && g.shut && (g.trying || now.Before(g.opens))
}

func (g *gate) denies(wait, every time.Duration, now time.Time) {
	g.shut, g.opens, g.every = true, now.Add(wait), every
	g.next = later(g.opens.Add(every), g.next)
}

// standing is how many tenants stand here.
func (g *gate) standing(now time.Time) int {
	if past := now.Sub(g.began); past >= 2*retryMost {
		g.round, g.began, g.these, g.last = g.round+2, now, 0, 0
	} else if past >= retryMost {
		g.round, g.began, g.these, g.last = g.round+1, now, 0, g.these
	}
	return g.these + g.last
}

// stand is that a tenant stands at its gate.
func (l *lane) stand(now time.Time) {
	g := l.gate
	if g.standing(now); l.stands == g.round {
		return
	}
	if l.stands == g.round-1 {
		g.last--
	}
	g.these++
	l.stands = g.round
}

// leave is that it stands there no more, until it does again.
func (l *lane) leave(now time.Time) {
	g := l.gate
	if g == nil {
		return
	}
	g.standing(now)
	switch l.stands {
	case g.round:
		g.these--
	case g.round - 1:
		g.last--
	}
	l.stands = 0
}

// passes is that one of a tenant's has passed. Its next are behind those of all others who stand
// there, or the tenant with the most would have the most of a limit.
func (l *lane) passes(now time.Time) {
	if l.gate == nil || !l.gate.shared {
		return
	}
	l.leave(now)
	l.opens = now.Add(min(l.gate.every*time.Duration(l.gate.standing(now)), retryMost))
}
