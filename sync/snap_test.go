package deltasync

import (
	"errors"
	"maps"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A bad Snap is counted by reason, and what is longer than any is not read.
func TestInboxRefusesSnaps(t *testing.T) {
	good := Snap{Region: "eu", Lane: 1, Lanes: 2}
	in := NewInbox("eu", 2)
	if s, _, err := in.AdmitSnap(encode(t, &good)); err != nil || *s != good {
		t.Fatalf("AdmitSnap = %v, %v, want %v", s, err, good)
	}
	long := protowire.AppendBytes(protowire.AppendTag(encode(t, &good), 99, protowire.BytesType), make([]byte, maxSnap)) // could be read
	for _, c := range []struct {
		reason string
		want   Status
		frame  []byte
	}{
		{reasonMalformed, StatusUnsupported, []byte("poison")}, {reasonMalformed, StatusUnsupported, nil}, {reasonNewer, StatusUnsupported, []byte{8, Version + 1}},
		{reasonOversized, StatusUnsupported, long},
		{reasonForeign, StatusForbidden, encode(t, &Snap{Region: "us", Lane: 1, Lanes: 2})},
		{reasonLanes, StatusUnsupported, encode(t, &Snap{Region: "eu", Lane: 1, Lanes: 4})},
	} {
		before := in.Refused()
		before[c.reason]++
		if s, status, err := in.AdmitSnap(c.frame); s != nil || status != c.want || err == nil || !maps.Equal(in.Refused(), before) {
			t.Errorf("%s: AdmitSnap(%.20q) = %v, %v, %v, refused %v, want %v, %v", c.reason, c.frame, s, status, err, in.Refused(), c.want, before)
		}
	}
}

// So are bad Claims, and who goes on sending them is muted, as their subject says who it
// is; but for other lanes, which one who has them does not mend by keeping silent.
func TestInboxRefusesClaims(t *testing.T) {
	inLane := [2]Key{1, 1 << 32} // of two
	if inLane[0].Lane(2) != 0 || inLane[1].Lane(2) != 1 {
		t.Fatal("the keys are in other lanes")
	}
	claims := func(change func(*Claims)) []byte {
		c := Claims{Region: "eu", Lane: 0, Lanes: 2, From: "us", Pop: "p", Name: "e1", SentAt: 1,
			Claims: []Claim{{Key: inLane[0], Holder: 7, Limit: 10, Lasts: 1, Want: 3}}}
		change(&c)
		return encode(t, &c)
	}
	subject := ClaimSubject("eu", 0, "us", "p", "e1")
	in := NewInbox("eu", 2)
	if c, status, err := in.AdmitClaims(1, subject, claims(func(*Claims) {})); err != nil || status != StatusOK || c.Claims[0].Want != 3 {
		t.Fatalf("AdmitClaims = %v, %v, %v, want the claims", c, status, err)
	}
	for _, c := range []struct {
		reason, subject string
		want            Status
		frame           []byte
	}{
		{reasonSubject, "spill.elsewhere", StatusForbidden, claims(func(*Claims) {})},
		{reasonForeign, ClaimSubject("us", 0, "us", "p", "e1"), StatusForbidden, claims(func(*Claims) {})},
		{reasonForeign, subject, StatusForbidden, claims(func(c *Claims) { c.Region = "us" })},
		{reasonMalformed, subject, StatusUnsupported, []byte("poison")},
		{reasonNewer, subject, StatusUnsupported, []byte{8, Version + 1}},
		{reasonIdentity, subject, StatusForbidden, claims(func(c *Claims) { c.Name = "e2" })},
		{reasonIdentity, subject, StatusForbidden, claims(func(c *Claims) { c.Pop = "q" })},
		{reasonIdentity, subject, StatusForbidden, claims(func(c *Claims) { c.From = "eu" })},
		{reasonLanes, subject, StatusUnsupported, claims(func(c *Claims) { c.Lanes = 4 })},
		{reasonLanes, subject, StatusUnsupported, claims(func(c *Claims) { c.Lane = 1 })},
		{reasonLanes, subject, StatusUnsupported, claims(func(c *Claims) { c.Claims[0].Key = inLane[1] })},
	} {
		before := in.Refused()
		before[c.reason]++
		if got, status, err := in.AdmitClaims(1, c.subject, c.frame); got != nil || status != c.want || err == nil || !maps.Equal(in.Refused(), before) {
			t.Errorf("%s: AdmitClaims(%s, %.20q) = %v, %v, %v, refused %v, want %v, %v", c.reason, c.subject, c.frame, got, status, err, in.Refused(), c.want, before)
		}
	}
	in = NewInbox("eu", 2)
	for range 2 * muteAfter {
		in.AdmitClaims(1, subject, claims(func(c *Claims) { c.Lanes = 4 }))
	}
	if n := in.Muted(1); n != 0 {
		t.Errorf("%d muted that have other lanes, want none", n)
	}
	muted := 0
	for range 2 * muteAfter {
		if _, _, err := in.AdmitClaims(1, subject, []byte("poison")); err != nil {
			if _, is := errors.AsType[*MutedError](err); is {
				muted++
			}
		}
	}
	if _, status, err := in.AdmitClaims(1, subject, claims(func(*Claims) {})); muted != 1 || in.Muted(1) != 1 || status != StatusForbidden || err == nil {
		t.Errorf("said to be muted %d times, %d are; a good frame gets %v, %v; want 1, 1, and it refused", muted, in.Muted(1), status, err)
	}
	if _, _, err := in.AdmitClaims(1, ClaimSubject("eu", 0, "us", "p", "e2"), claims(func(c *Claims) { c.Name = "e2" })); err != nil {
		t.Errorf("another edge's are refused: %v", err)
	}
}
