package deltasync

import (
	"errors"
	"fmt"
)

// maxSnap is more than a Snap takes, with what later builds may add.
const maxSnap = 1 << 10

// AdmitSnap reads a Snap and checks that it fits here. What is refused is counted by
// reason; the status is what to answer. Nobody is muted for it, as its subject does not say who asks: whoever were
// shut out, it would be edges that start. Nor need anybody be: a Snap is small, what
// is longer is refused unread, and to refuse one takes no longer than to find out
// that a sender is muted.
func (in *Inbox) AdmitSnap(payload []byte) (*Snap, Status, error) {
	s, status, reason, err := in.checkSnap(payload)
	if err != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.refused[reason]++
		return nil, status, fmt.Errorf("admit snap: %w", err)
	}
	return s, StatusOK, nil
}

func (in *Inbox) checkSnap(payload []byte) (*Snap, Status, string, error) {
	if len(payload) > maxSnap {
		return nil, StatusUnsupported, reasonOversized, fmt.Errorf("%w: %d bytes, want at most %d", ErrTooLarge, len(payload), maxSnap)
	}
	s := new(Snap)
	if err := s.UnmarshalBinary(payload); err != nil {
		return nil, StatusUnsupported, unreadable(err), err
	}
	switch {
	case s.Region != in.region:
		return nil, StatusForbidden, reasonForeign, fmt.Errorf("it is to region %q, this is %s", s.Region, in.region)
	case s.Lanes != in.lanes:
		return nil, StatusUnsupported, reasonLanes, fmt.Errorf("the sender has %d lanes, this region %d: set the same number everywhere", s.Lanes, in.lanes)
	}
	return s, StatusOK, "", nil
}

// AdmitClaims reads Claims that arrived on subject, and checks that they come from whom
// that names. As for Admit, what is refused is counted by reason, the status is what to
// answer, and who persists is muted.
func (in *Inbox) AdmitClaims(now int64, subject string, payload []byte) (*Claims, Status, error) {
	from, err := ParseClaim(subject)
	reason := reasonSubject
	if err == nil && from.Region != in.region {
		reason, err = reasonForeign, fmt.Errorf("they are addressed to %s, this is %s", from.Region, in.region)
	}
	if err != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.refused[reason]++
		return nil, StatusForbidden, fmt.Errorf("admit claims on %.200q: %w", subject, err)
	}
	if why := in.muted(now, from); why != nil {
		return nil, StatusForbidden, fmt.Errorf("admit claims on %s: %w: %w", subject, errMuted, why)
	}
	c, status, reason, err := in.checkClaims(from, payload)
	in.mu.Lock()
	defer in.mu.Unlock()
	if err == nil {
		in.offenders.good(now, from)
		return c, StatusOK, nil
	}
	err = fmt.Errorf("admit claims on %s: %w", subject, err)
	in.refused[reason]++
	if l := (*LanesError)(nil); errors.As(err, &l) {
		return nil, status, err
	}
	if term := in.offenders.refuse(now, from, err); term > 0 {
		err = &MutedError{Sender: from, For: term, Err: err}
	}
	return nil, status, err
}

func (in *Inbox) checkClaims(from Sender, payload []byte) (*Claims, Status, string, error) {
	c := new(Claims)
	if err := c.UnmarshalBinary(payload); err != nil {
		return nil, StatusUnsupported, unreadable(err), err
	}
	switch {
	case c.Region != in.region:
		return nil, StatusForbidden, reasonForeign, fmt.Errorf("they are to region %q, this is %s", c.Region, in.region)
	case from.From != c.From || from.Pop != c.Pop || from.Name != c.Name:
		return nil, StatusForbidden, reasonIdentity, fmt.Errorf("they say that they are of %s/%s/%s", c.From, c.Pop, c.Name)
	case c.Lanes != in.lanes:
		return nil, StatusUnsupported, reasonLanes, &LanesError{Sender: from, Lanes: c.Lanes, Want: in.lanes}
	case c.Lane != from.Lane:
		return nil, StatusUnsupported, reasonLanes, fmt.Errorf("lane: %d, subject says %d", c.Lane, from.Lane)
	}
	for i := range c.Claims {
		if lane := c.Claims[i].Key.Lane(in.lanes); lane != c.Lane {
			return nil, StatusUnsupported, reasonLanes, fmt.Errorf("claims[%d]: a key of lane %d in lane %d", i, lane, c.Lane)
		}
	}
	return c, StatusOK, "", nil
}
