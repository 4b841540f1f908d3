package deltasync

import (
	"strings"
	"testing"
)

func TestSubjects(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{EdgeSubject("eu", 3, "ams", "edge-1"), "sg.v1.up.eu.3.e.ams.edge-1"},
		{RegionSubject("eu", 63, "us"), "sg.v1.up.eu.63.r.us"},
		{HotSubject("eu", 0), "sg.v1.hot.eu.0"},
		{UpSubjects("eu"), "sg.v1.up.eu.>"},
		{LaneSubjects("eu", 3), "sg.v1.up.eu.3.>"},
		{LiveSubject("eu"), "sg.v1.live.eu"},
		{AskSubject("eu"), "sg.v1.live.eu.ask"},
		{SnapSubject("eu", 7), "sg.v1.snap.eu.7"},
		{HotSubjects("eu"), "sg.v1.hot.eu.*"},
		{Queue("eu"), "agg-eu"},
		{AuditSubject("eu", 7), "sg.v1.audit.eu.7"},
		{AuditedRegion(AuditSubject("eu", 7)), "eu"},
		{AuditedRegion(SnapSubject("eu", 7)), ""},
		{ClaimSubject("us", 3, "eu", "ams", "edge-1"), "sg.v1.claim.us.3.e.eu.ams.edge-1"},
		{ClaimSubjects("us", 3), "sg.v1.claim.us.3.>"},
		{GrantSubject("eu", 7), "sg.v1.grant.eu.7"},
		{GrantSubjects("eu"), "sg.v1.grant.eu.*"},
		{GrantedRegion(GrantSubject("eu", 7)), "eu"},
		{GrantedRegion(HotSubject("eu", 7)), ""},
		{TellSubject("eu", "ams", "edge-1"), "sg.v1.tell.eu.e.ams.edge-1"},
		{TellSubjects("eu"), "sg.v1.tell.eu.>"},
		{ToldSubject("eu"), "sg.v1.told.eu"},
	} {
		if c.got != c.want {
			t.Errorf("subject %q, want %q", c.got, c.want)
		}
	}
}

func TestParseTellSubject(t *testing.T) {
	want := Sender{Region: "eu", Kind: KindEdge, Pop: "ams", Name: "e1", From: "eu"}
	if got, err := ParseTellSubject(TellSubject("eu", "ams", "e1")); err != nil || got != want {
		t.Errorf("ParseTellSubject = %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "sg.v1.tell.eu", "sg.v1.tell.eu.e.ams", "sg.v1.tell.eu.r.ams.e1", "sg.v1.tell.eu.e.ams.e1.more", "sg.v1.tell.eu.e.AMS.e1", "sg.v1.up.eu.e.ams.e1"} {
		if got, err := ParseTellSubject(bad); err == nil {
			t.Errorf("ParseTellSubject(%q) = %+v, want an error", bad, got)
		}
	}
}

func TestParseUp(t *testing.T) {
	for _, lane := range []int{0, 9, 63} {
		want := Sender{Region: "eu", Lane: lane, Kind: KindEdge, Pop: "ams", Name: "e1", From: "eu"}
		if got, err := ParseUp(EdgeSubject("eu", lane, "ams", "e1")); err != nil || got != want {
			t.Errorf("ParseUp = %+v, %v, want %+v", got, err, want)
		}
		want = Sender{Region: "eu", Lane: lane, Kind: KindRegion, From: "us"}
		if got, err := ParseUp(RegionSubject("eu", lane, "us")); err != nil || got != want {
			t.Errorf("ParseUp = %+v, %v, want %+v", got, err, want)
		}
	}
	for _, bad := range []string{
		"", "sg", "sg.v1.up.", "sg.v1.up.eu", "sg.v1.up.eu.0", "sg.v1.up.eu.0.e", "sg.v1.up.eu.0.e.ams", "sg.v1.up.eu.0.e.ams.e1.x",
		"sg.v1.up.eu.0.r", "sg.v1.up.eu.0.r.us.x", "sg.v1.up.eu.0.x.us", "sg.v2.up.eu.0.r.us", "sg.v1.hot.eu.0",
		"sg.v1.up.eu.64.r.us", "sg.v1.up.eu.-1.r.us", "sg.v1.up.eu.+1.r.us", "sg.v1.up.eu.01.r.us", "sg.v1.up.eu..r.us", "sg.v1.up.eu.1e1.r.us",
		"sg.v1.up.EU.0.r.us", "sg.v1.up..0.r.us", "sg.v1.up.eu.0.r.", "sg.v1.up.eu.0.r.*", "sg.v1.up.eu.0.e.>.e1", "sg.v1.up.eu.0.e.ams.-e", "sg.v1.up.*.0.r.us",
		"sg.v1.up.eu.0.r." + strings.Repeat("a", 1<<20), "sg.v1.up." + strings.Repeat(".", 1<<20),
	} {
		got, err := ParseUp(bad)
		if err == nil || got != (Sender{}) {
			t.Errorf("ParseUp(%.60q) = %+v, %v, want an error", bad, got, err)
		} else if len(err.Error()) > 1000 {
			t.Errorf("ParseUp(%.60q): an error of %d bytes", bad, len(err.Error()))
		}
	}
}

func TestParseClaim(t *testing.T) {
	want := Sender{Region: "us", Lane: 63, Kind: KindEdge, Pop: "ams", Name: "e1", From: "eu"}
	if got, err := ParseClaim(ClaimSubject("us", 63, "eu", "ams", "e1")); err != nil || got != want {
		t.Errorf("ParseClaim = %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{
		"", "sg.v1.claim.", "sg.v1.claim.us.0.e.eu.ams", "sg.v1.claim.us.0.e.eu.ams.e1.x", "sg.v1.claim.us.0.r.eu.ams.e1", "sg.v1.up.us.0.e.eu.ams.e1",
		"sg.v1.claim.us.64.e.eu.ams.e1", "sg.v1.claim.us.01.e.eu.ams.e1", "sg.v1.claim.US.0.e.eu.ams.e1", "sg.v1.claim.us.0.e.*.ams.e1", "sg.v1.claim.us.0.e.eu..e1",
		"sg.v1.claim.us.0.e.eu.ams." + strings.Repeat("a", 1<<20),
	} {
		if got, err := ParseClaim(bad); err == nil || got != (Sender{}) || len(err.Error()) > 1000 {
			t.Errorf("ParseClaim(%.60q) = %+v, %.100v, want a short error", bad, got, err)
		}
	}
}

func TestValidToken(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "0": true, "eu-west-1": true, "a-": true, strings.Repeat("z", 32): true,
		"": false, "-a": false, "A": false, "a.b": false, "a b": false, "a_b": false, "ä": false, "a\x00": false, "*": false, ">": false,
		strings.Repeat("z", 33): false,
	} {
		if err := ValidToken(s); (err == nil) != ok {
			t.Errorf("ValidToken(%q) = %v, want valid: %v", s, err, ok)
		}
	}
}

func FuzzParseUp(f *testing.F) {
	f.Add(EdgeSubject("eu", 3, "ams", "edge-1"))
	f.Add(RegionSubject("eu", 3, "us"))
	f.Fuzz(func(t *testing.T, subject string) {
		s, err := ParseUp(subject)
		if err != nil {
			return
		}
		again := RegionSubject(s.Region, s.Lane, s.From)
		if s.Kind == KindEdge {
			again = EdgeSubject(s.Region, s.Lane, s.Pop, s.Name)
		}
		if again != subject {
			t.Errorf("ParseUp(%q) = %+v, which is %q", subject, s, again)
		}
	})
}

func FuzzParseClaim(f *testing.F) {
	f.Add(ClaimSubject("eu", 3, "us", "nyc", "edge-1"))
	f.Add(EdgeSubject("eu", 3, "ams", "edge-1"))
	f.Fuzz(func(t *testing.T, subject string) {
		s, err := ParseClaim(subject)
		if err != nil {
			return
		}
		if again := ClaimSubject(s.Region, s.Lane, s.From, s.Pop, s.Name); again != subject {
			t.Errorf("ParseClaim(%q) = %+v, which is %q", subject, s, again)
		}
	})
}
