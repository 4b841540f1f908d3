package deltasync

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame or
// ErrTooLarge, it returns dst as it was.
func (c *Claims) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, c.append(&w), "claims")
}

func (c *Claims) append(w *writer) error {
	if err := c.check(); err != nil {
		return err
	}
	if err := w.version(0); err != nil {
		return err
	}
	w.text(claimsRegion, c.Region)
	w.uint(claimsLane, uint64(c.Lane))
	w.uint(claimsLanes, uint64(c.Lanes))
	w.text(claimsFrom, c.From)
	w.text(claimsPop, c.Pop)
	w.text(claimsName, c.Name)
	w.fixed(claimsSentAt, uint64(c.SentAt))
	for i := range c.Claims {
		k, regional := &c.Claims[i], uint64(0)
		if k.Regional {
			regional = 1
		}
		at := w.open(claimsClaims)
		w.fixed(claimKey, uint64(k.Key))
		w.fixed(claimHolder, k.Holder)
		w.uint(claimLimit, k.Limit)
		w.uint(claimLasts, uint64(k.Lasts))
		w.uint(claimGranted, k.Granted)
		w.uint(claimReturned, k.Returned)
		w.uint(claimWant, k.Want)
		w.uint(claimRegional, regional)
		w.uint(claimBound, k.Bound)
		for _, e := range k.Ends {
			at := w.open(claimEnds)
			w.uint(endCost, e.Cost)
			w.uint(endIn, uint64(e.In))
			w.close(at)
		}
		w.close(at)
	}
	return nil
}

// UnmarshalBinary replaces c by the frame in b, which it keeps no part of. On an
// error, which wraps ErrFrame, ErrTooLarge or a *VersionError, c is left as it was.
func (c *Claims) UnmarshalBinary(b []byte) error {
	var out Claims
	if err := decode(b, "claims", out.read); err != nil {
		return err
	}
	*c = out
	return nil
}

func (c *Claims) read(m message) error {
	for m.next() {
		switch m.num {
		case claimsRegion:
			c.Region = m.token("region")
		case claimsLane:
			c.Lane = int(m.uint("lane", MaxLanes-1))
		case claimsLanes:
			c.Lanes = int(m.uint("lanes", MaxLanes))
		case claimsFrom:
			c.From = m.token("from")
		case claimsPop:
			c.Pop = m.token("pop")
		case claimsName:
			c.Name = m.token("name")
		case claimsSentAt:
			c.SentAt = int64(m.fixed("sent_at"))
		case claimsClaims:
			if len(c.Claims) == MaxClaims {
				return fmt.Errorf("claims: more than %d", MaxClaims)
			}
			var k Claim
			if err := k.read(m.message("claims")); err != nil {
				return fmt.Errorf("claims[%d].%w", len(c.Claims), err)
			}
			c.Claims = append(c.Claims, k)
		}
	}
	if m.err != nil {
		return m.err
	}
	return c.check()
}

func (k *Claim) read(m message) error {
	for m.next() {
		switch m.num {
		case claimKey:
			k.Key = Key(m.fixed("key"))
		case claimHolder:
			k.Holder = m.fixed("holder")
		case claimLimit:
			k.Limit = m.uint("limit", math.MaxUint64)
		case claimLasts:
			k.Lasts = time.Duration(m.uint("lasts", uint64(maxLasts)))
		case claimGranted:
			k.Granted = m.uint("granted", math.MaxUint64)
		case claimReturned:
			k.Returned = m.uint("returned", math.MaxUint64)
		case claimWant:
			k.Want = m.uint("want", math.MaxUint64)
		case claimRegional:
			k.Regional = m.uint("regional", 1) == 1
		case claimBound:
			k.Bound = m.uint("bound", math.MaxUint64)
		case claimEnds:
			if len(k.Ends) == MaxEnds {
				return fmt.Errorf("ends: more than %d", MaxEnds)
			}
			var e End
			if err := e.read(m.message("ends")); err != nil {
				return fmt.Errorf("ends[%d].%w", len(k.Ends), err)
			}
			k.Ends = append(k.Ends, e)
		}
	}
	return m.err
}

func (e *End) read(m message) error {
	for m.next() {
		switch m.num {
		case endCost:
			e.Cost = m.uint("cost", math.MaxUint64)
		case endIn:
			e.In = time.Duration(m.uint("in", uint64(maxLasts)))
		}
	}
	return m.err
}

// maxLasts is the longest that a spend may count: the longest window, and what edges
// may be apart about where it begins.
const maxLasts = maxWindow + time.Minute

func (c *Claims) check() error {
	if err := firstOf(checkLane(c.Lane, c.Lanes), checkToken("region", c.Region), checkToken("from", c.From), checkToken("pop", c.Pop), checkToken("name", c.Name)); err != nil {
		return err
	}
	if len(c.Claims) > MaxClaims {
		return fmt.Errorf("claims: %d, want at most %d", len(c.Claims), MaxClaims)
	}
	ends := 0
	for i := range c.Claims {
		if err := c.Claims[i].check(); err != nil {
			return fmt.Errorf("claims[%d].%w", i, err)
		}
		if ends += len(c.Claims[i].Ends); ends > MaxClaims {
			return fmt.Errorf("claims[%d].ends: %d with those before, want at most %d", i, ends, MaxClaims)
		}
	}
	return nil
}

func (k *Claim) check() error {
	switch {
	case k.Key == 0:
		return fmt.Errorf("key: %w", errZeroKey)
	case k.Holder == 0:
		return errors.New("holder: missing")
	case k.Lasts <= 0 || k.Lasts > maxLasts:
		return fmt.Errorf("lasts: %v, want more than 0 and at most %v", k.Lasts, maxLasts)
	case k.Returned > k.Granted:
		return fmt.Errorf("returned: %d of %d that were granted", k.Returned, k.Granted)
	}
	return k.checkEnds()
}

func (k *Claim) checkEnds() error {
	if len(k.Ends) == 0 {
		return nil
	}
	if len(k.Ends) > MaxEnds {
		return fmt.Errorf("ends: %d, want at most %d", len(k.Ends), MaxEnds)
	}
	left := k.Granted - k.Returned
	for i, e := range k.Ends {
		switch {
		case e.Cost == 0 || e.Cost > left:
			return fmt.Errorf("ends[%d].cost: %d, want 1 to %d, what is left of what it has", i, e.Cost, left)
		case e.In < 0 || e.In > k.Lasts:
			return fmt.Errorf("ends[%d].in: %v, want 0 to %v", i, e.In, k.Lasts)
		}
		left -= e.Cost
	}
	if left > 0 {
		return fmt.Errorf("ends: %d of what it has is missing", left)
	}
	return nil
}

func checkLane(lane, lanes int) error {
	if lanes < 1 || lanes > MaxLanes {
		return fmt.Errorf("lanes: %d, want 1 to %d", lanes, MaxLanes)
	}
	if lane < 0 || lane >= lanes {
		return fmt.Errorf("lane: %d, want 0 to %d", lane, lanes-1)
	}
	return nil
}

// AppendBinary appends the frame to dst. On an error, which wraps ErrFrame or
// ErrTooLarge, it returns dst as it was.
func (g *Grants) AppendBinary(dst []byte) ([]byte, error) {
	w := writer{b: dst}
	return fits(dst, &w, g.append(&w), "grants")
}

func (g *Grants) append(w *writer) error {
	if err := g.check(); err != nil {
		return err
	}
	if err := w.version(0); err != nil {
		return err
	}
	w.text(grantsRegion, g.Region)
	w.uint(grantsLane, uint64(g.Lane))
	w.uint(grantsStatus, uint64(g.Status))
	w.fixed(grantsEcho, uint64(g.Echo))
	w.uint(grantsLease, uint64(g.Lease))
	w.fixed(grantsLog, g.Log)
	for i := range g.Grants {
		k := &g.Grants[i]
		at := w.open(grantsGrants)
		w.fixed(grantKey, uint64(k.Key))
		w.fixed(grantHolder, k.Holder)
		w.uint(grantGranted, k.Granted)
		w.uint(grantTarget, k.Target)
		w.fixed(grantEcho, uint64(k.Echo))
		w.uint(grantFlags, uint64(k.Flags))
		w.text(grantHome, k.Home)
		w.close(at)
	}
	return nil
}

// UnmarshalBinary replaces g by the frame in b, which it keeps no part of. On an
// error, which wraps ErrFrame, ErrTooLarge or a *VersionError, g is left as it was.
func (g *Grants) UnmarshalBinary(b []byte) error {
	var out Grants
	if err := decode(b, "grants", out.read); err != nil {
		return err
	}
	*g = out
	return nil
}

func (g *Grants) read(m message) error {
	for m.next() {
		switch m.num {
		case grantsRegion:
			g.Region = m.token("region")
		case grantsLane:
			g.Lane = int(m.uint("lane", MaxLanes-1))
		case grantsStatus:
			g.Status = Status(m.uint("status", math.MaxUint8))
		case grantsEcho:
			g.Echo = int64(m.fixed("echo"))
		case grantsLease:
			g.Lease = time.Duration(m.uint("lease", uint64(MaxLease)))
		case grantsLog:
			g.Log = m.fixed("log")
		case grantsGrants:
			if len(g.Grants) == MaxClaims {
				return fmt.Errorf("grants: more than %d", MaxClaims)
			}
			var k Grant
			if err := k.read(m.message("grants")); err != nil {
				return fmt.Errorf("grants[%d].%w", len(g.Grants), err)
			}
			g.Grants = append(g.Grants, k)
		}
	}
	if m.err != nil {
		return m.err
	}
	return g.check()
}

func (k *Grant) read(m message) error {
	for m.next() {
		switch m.num {
		case grantKey:
			k.Key = Key(m.fixed("key"))
		case grantHolder:
			k.Holder = m.fixed("holder")
		case grantGranted:
			k.Granted = m.uint("granted", math.MaxUint64)
		case grantTarget:
			k.Target = m.uint("target", math.MaxUint64)
		case grantEcho:
			k.Echo = int64(m.fixed("echo"))
		case grantFlags:
			k.Flags = GrantFlags(m.uint("flags", math.MaxUint8)) & allGrantFlags
		case grantHome:
			k.Home = m.token("home")
		}
	}
	return m.err
}

func (g *Grants) check() error {
	var status, many error
	if g.Status == 0 {
		status = errors.New("status: missing")
	}
	if len(g.Grants) > MaxClaims {
		many = fmt.Errorf("grants: %d, want at most %d", len(g.Grants), MaxClaims)
	}
	if err := firstOf(status, many, checkToken("region", g.Region), checkRange("lane", int64(g.Lane), MaxLanes-1), checkRange("lease", int64(g.Lease), int64(MaxLease))); err != nil {
		return err
	}
	for i := range g.Grants {
		switch k := &g.Grants[i]; {
		case k.Key == 0:
			return fmt.Errorf("grants[%d].key: %w", i, errZeroKey)
		case k.Holder == 0:
			return fmt.Errorf("grants[%d].holder: missing", i)
		default:
			if err := checkToken("home", k.Home); err != nil {
				return fmt.Errorf("grants[%d].%w", i, err)
			}
		}
	}
	return nil
}
