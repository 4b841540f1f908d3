package escrow

// Stats is what an authority counted, and holds.
type Stats struct {
	Keys, Short                               int
	Granted, Returned, Voided, Fenced, Failed uint64
	Revoked                                   uint64 // claims by edges whose rights were taken back
	Crowded                                   uint64 // claims for which there was no room: of one more holder (these are Voided, too), or key
}

// Stats counts.
func (a *Authority) Stats() (s Stats) {
	for i := range a.lanes {
		l := &a.lanes[i]
		l.mu.Lock()
		s.Keys, s.Short = s.Keys+len(l.keys), s.Short+len(l.short)
		l.mu.Unlock()
	}
	st := &a.stats
	s.Granted, s.Returned, s.Voided = st.granted.Load(), st.returned.Load(), st.voided.Load()
	s.Fenced, s.Failed, s.Crowded, s.Revoked = st.fenced.Load(), st.failed.Load(), st.crowded.Load(), st.revoked.Load()
	return s
}
