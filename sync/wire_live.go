package deltasync

import (
	"errors"
	"fmt"
	"math"
)

// Live is what an aggregator says of itself to the others of its region, time
// and again: by it they share the lanes, and know who is gone.
type Live struct {
	Region      string
	Name        string
	Incarnation uint64 // of this life, in milliseconds since 1970
	Lanes       int    // as it is configured
	SentAt      int64  // sender's clock, nanoseconds since 1970
	Leaving     bool   // it stops: its lanes are others' from now on
	LiveEdges   int    // of the region, that it heard of lately itself
	LiveRegions int    // likewise, the own one counted
	EvenEdges   int    // LiveEdges, but of no PoP many more than of others; 0: a build before did not say
}

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame or
// ErrTooLarge, it returns dst as it was.
func (l *Live) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, l.append(&w), "live")
}

func (l *Live) append(w *writer) error {
	if err := l.check(); err != nil {
		return err
	}
	leaving := uint64(0)
	if l.Leaving {
		leaving = 1
	}
	if err := w.version(0); err != nil {
		return err
	}
	w.text(liveRegion, l.Region)
	w.text(liveName, l.Name)
	w.uint(liveIncarnation, l.Incarnation)
	w.uint(liveLanes, uint64(l.Lanes))
	w.fixed(liveSentAt, uint64(l.SentAt))
	w.uint(liveLeaving, leaving)
	w.uint(liveLiveEdges, uint64(l.LiveEdges))
	w.uint(liveLiveRegions, uint64(l.LiveRegions))
	w.uint(liveEvenEdges, uint64(l.EvenEdges))
	return nil
}

// UnmarshalBinary replaces l by the frame in b, which it keeps no part of. On
// an error, which wraps ErrFrame, ErrTooLarge or a *VersionError, l is left as
// it was.
func (l *Live) UnmarshalBinary(b []byte) error {
	var out Live
	if err := decode(b, "live", out.read); err != nil {
		return err
	}
	*l = out
	return nil
}

func (l *Live) read(m message) error {
	for m.next() {
		switch m.num {
		case liveRegion:
			l.Region = m.token("region")
		case liveName:
			l.Name = m.token("name")
		case liveIncarnation:
			l.Incarnation = m.uint("incarnation", math.MaxUint64)
		case liveLanes:
			l.Lanes = int(m.uint("lanes", MaxLanes))
		case liveSentAt:
			l.SentAt = int64(m.fixed("sent_at"))
		case liveLeaving:
			l.Leaving = m.uint("leaving", 1) == 1
		case liveLiveEdges:
			l.LiveEdges = int(m.uint("live_edges", maxLive))
		case liveLiveRegions:
			l.LiveRegions = int(m.uint("live_regions", maxLive))
		case liveEvenEdges:
			l.EvenEdges = int(m.uint("even_edges", maxLive))
		}
	}
	if m.err != nil {
		return m.err
	}
	return l.check()
}

func (l *Live) check() error {
	var name, lanes error
	if l.Name == "" {
		name = errors.New("name: missing")
	}
	if l.Lanes < 1 || l.Lanes > MaxLanes {
		lanes = fmt.Errorf("lanes: %d, want 1 to %d", l.Lanes, MaxLanes)
	}
	return firstOf(checkToken("region", l.Region), name, checkToken("name", l.Name), lanes,
		checkRange("live_edges", int64(l.LiveEdges), maxLive),
		checkRange("live_regions", int64(l.LiveRegions), maxLive),
		checkRange("even_edges", int64(l.EvenEdges), maxLive))
}
