package deltasync

import (
	"maps"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A bad Snap is counted by reason, and what is longer than any is not read.
func TestInboxRefusesSnaps(t *testing.T) {
	good := Snap{Region: "eu", Lane: 1, Lanes: 2}
	in := NewInbox("eu", 2)
	if s, err := in.AdmitSnap(encode(t, &good)); err != nil || *s != good {
		t.Fatalf("AdmitSnap = %v, %v, want %v", s, err, good)
	}
	long := protowire.AppendBytes(protowire.AppendTag(encode(t, &good), 99, protowire.BytesType), make([]byte, maxSnap)) // could be read
	for _, c := range []struct {
		reason string
		frame  []byte
	}{
		{reasonMalformed, []byte("poison")}, {reasonMalformed, nil}, {reasonNewer, []byte{8, Version + 1}},
		{reasonOversized, long},
		{reasonForeign, encode(t, &Snap{Region: "us", Lane: 1, Lanes: 2})}, {reasonLanes, encode(t, &Snap{Region: "eu", Lane: 1, Lanes: 4})},
	} {
		before := in.Refused()
		before[c.reason]++
		if s, err := in.AdmitSnap(c.frame); s != nil || err == nil || !maps.Equal(in.Refused(), before) {
			t.Errorf("%s: AdmitSnap(%.20q) = %v, %v, refused %v, want %v", c.reason, c.frame, s, err, in.Refused(), before)
		}
	}
}
