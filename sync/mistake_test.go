package deltasync

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillgate/spillgate/test/alone"
)

// Secrets are told apart, and nothing that stands in for one is what keys are made
// with.
func TestSecretCheck(t *testing.T) {
	one, err := SecretCheck([]byte("0123456789abcdef"))
	if err != nil || one == 0 {
		t.Fatalf("SecretCheck = %x, %v", one, err)
	}
	for _, other := range []string{"0123456789abcdeg", "0123456789abcdef0", "1123456789abcdef"} {
		if got, _ := SecretCheck([]byte(other)); got == one {
			t.Errorf("SecretCheck(%q) is that of another", other)
		}
		keyer, _ := NewKeyer([]byte(other))
		if got, _ := SecretCheck([]byte(other)); got == keyer[0] || got == keyer[1] {
			t.Errorf("SecretCheck(%q) is what keys are made with", other)
		}
	}
	if _, err := SecretCheck([]byte("short")); !errors.Is(err, ErrSecret) {
		t.Errorf("a short secret: %v, want %v", err, ErrSecret)
	}
}

// Whose secret is another is found by majority, or by who was there first; not
// before all had time to be heard of, and not by who is gone.
func TestEstranged(t *testing.T) {
	in := NewInbox("eu", 2)
	now, seq := int64(time.Hour), uint64(0)
	hears := func(name string, secret uint64, estranged, news bool) {
		t.Helper()
		seq++
		u := edgeUp(name, seq)
		u.SecretCheck = secret
		mustAdmit(t, in, now, u)
		if e, n := in.Estranged(now, u); e != estranged || n != news {
			t.Errorf("at %v, %s: Estranged = %v, %v, want %v, %v", time.Duration(now), name, e, n, estranged, news)
		}
	}
	if in.OtherSecrets(now) != 0 { // whoever looks before edges come changes nothing
		t.Error("edges of other secrets, and no edge is known")
	}
	now += int64(time.Minute)
	hears("odd", 7, false, false)
	hears("a", 5, false, false) // odd was first, and is no judge
	hears("b", 5, false, false)
	now += int64(secretsAfter)
	hears("a", 5, false, false)
	hears("odd", 7, true, true)
	hears("odd", 7, true, false)
	hears("older", 0, false, false) // a build that does not say
	if got := in.OtherSecrets(now); got != 1 {
		t.Errorf("OtherSecrets = %d, want 1", got)
	}
	now += int64(secretsWithin) // a and b are gone
	now++
	hears("odd", 7, false, false)
	hears("c", 5, true, true)
	now += int64(secretsEvery)
	hears("odd", 7, false, false)
	hears("c", 5, true, false) // as many: odd was there first
	now += int64(secretsEvery)
	hears("c", 7, false, false)
	if got := in.OtherSecrets(now); got != 0 {
		t.Errorf("OtherSecrets = %d, want 0: it was mended", got)
	}
}

// What a region says of its secret is compared, and is no vote on which is right.
func TestEstrangedRegion(t *testing.T) {
	in := NewInbox("eu", 2)
	now, seq := int64(time.Hour), uint64(0)
	hears := func(u *Up, secret uint64) bool {
		t.Helper()
		seq++
		u.Seq, u.SentAt, u.SecretCheck = seq, now, secret
		mustAdmit(t, in, now, u)
		other, _ := in.Estranged(now, u)
		return other
	}
	for range 5 {
		for _, name := range []string{"agg-1", "agg-2", "agg-3"} {
			if hears(regionUp("us", name, 1), 7) {
				t.Error("us has another secret, and none of an edge is known")
			}
		}
		now += int64(secretsEvery)
	}
	if got := in.Secret(now); got != 0 {
		t.Errorf("Secret = %d, and no edge has said", got)
	}
	hears(edgeUp("e1", 1), 5)
	now += int64(secretsAfter)
	hears(edgeUp("e1", 1), 5)
	if got := in.Secret(now); got != 5 || in.OtherSecrets(now) != 0 {
		t.Errorf("Secret = %d, and %d edges have another; want the edge's, whatever three aggregators elsewhere say", got, in.OtherSecrets(now))
	}
	if !hears(regionUp("us", "agg-1", 1), 7) || hears(regionUp("ap", "agg-1", 1), 5) || hears(regionUp("old", "agg-1", 1), 0) {
		t.Error("want us estranged, and neither ap nor who does not say")
	}
}

// What is refused for its lanes says so, however often, and whoever mends them is
// heard at once: with an incarnation of its own or, a region, without.
func TestOtherLanesAreNoOffence(t *testing.T) {
	alone.Mark(t)
	for _, u := range []*Up{edgeUp("e", 1), regionUp("us", "agg-1", 1)} {
		in := NewInbox("eu", 4)
		now, news, first := int64(time.Hour), 0, true
		for ; now < int64(4*time.Hour); now += int64(250 * time.Millisecond) {
			u.Seq++
			_, status, err := in.Admit(now, subjectOf(u), encode(t, u))
			l := (*LanesError)(nil)
			if !errors.As(err, &l) || status != StatusUnsupported || l.Lanes != 2 || l.Want != 4 || l.Sender.Kind != u.Kind {
				t.Fatalf("after %v: %v, %v, want that it has 2 lanes", time.Duration(now)-time.Hour, status, err)
			}
			if l.News {
				news++
			}
			if first && !l.News {
				t.Error("the first is no news")
			}
			first = false
		}
		if news != 3 || in.Muted(now) != 0 {
			t.Errorf("in three hours news %d times, and %d muted; want 3 and none", news, in.Muted(now))
		}
		u.Lanes, u.Seq, u.SentAt, u.Sections = 4, 1, now, nil
		if u.Kind == KindEdge {
			u.Incarnation++
		}
		mustAdmit(t, in, now, u)
	}
}

// Of however many that have other lanes, so many are news.
func TestOtherLanesDoNotFillTheLog(t *testing.T) {
	in := NewInbox("eu", 4)
	news := 0
	for i := range 4 * maxNews {
		u := edgeUp(fmt.Sprint("e", i%(2*maxNews)), 1)
		_, _, err := in.Admit(1, subjectOf(u), encode(t, u))
		if l := (*LanesError)(nil); errors.As(err, &l) && l.News {
			news++
		}
	}
	if news != maxNews || len(in.lanesNews.said) != maxNews {
		t.Errorf("%d are news, %d remembered, want %d", news, len(in.lanesNews.said), maxNews)
	}
}

// Nobody gains by other lanes: of such a frame the head alone is read, and who
// writes another head than the frame has is muted as for any other bad frame.
func TestOtherLanesAreCheap(t *testing.T) {
	in := NewInbox("eu", 4)
	u := edgeUp("e", 1)
	head := encode(t, u)
	poison := append(append([]byte(nil), head...), make([]byte, MaxFrame-len(head))...)
	l := (*LanesError)(nil)
	if _, _, err := in.Admit(1, subjectOf(u), poison); !errors.As(err, &l) {
		t.Errorf("%v: the whole frame was read", err)
	}
	u.Lanes = 4
	forged := protowire.AppendVarint(protowire.AppendTag(encode(t, u), upLanes, protowire.VarintType), 2)
	for range muteAfter + 1 {
		if _, _, err := in.Admit(1, subjectOf(u), forged); err == nil || errors.As(err, &l) {
			t.Fatalf("a frame whose head says otherwise: %v", err)
		}
	}
	if in.Muted(1) != 1 {
		t.Error("who sends frames whose heads say otherwise is not muted")
	}
	// While it is muted, nothing is said of lanes.
	if _, status, err := in.Admit(1, subjectOf(u), head); status != StatusForbidden || errors.As(err, &l) {
		t.Errorf("muted: %v, %v", status, err)
	}
}

// A frame's head says how many lanes there are, whatever the frame has.
func TestLanesOf(t *testing.T) {
	for seed := range uint64(200) {
		u := newFrames(seed).up()
		if got := lanesOf(encode(t, u)); got != u.Lanes {
			t.Fatalf("seed %d: lanesOf = %d, want %d", seed, got, u.Lanes)
		}
	}
	for _, b := range []string{"", "GET / HTTP/1.1", "\x08\x01\x48", "\x08\x63\x48\x04", "\x08\x01\x48\xff\x01"} {
		if got := lanesOf([]byte(b)); got != 0 {
			t.Errorf("lanesOf(%q) = %d, want 0", b, got)
		}
	}
}

// What it costs to refuse a full frame for its lanes, beside one of who is muted.
func BenchmarkRefuse(b *testing.B) {
	full := edgeUp("e", 1)
	for i := range Key(2000) {
		full.Sections[0].Deltas = append(full.Sections[0].Deltas, Delta{Key: 1<<32 + i<<8, Cells: cell(1, 1)})
	}
	payload, err := full.AppendBinary(nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		lanes int
		muted bool
	}{{"lanes", 4, false}, {"muted", 2, true}, {"read", 2, false}} {
		b.Run(c.name, func(b *testing.B) {
			in := NewInbox("eu", c.lanes)
			for range muteAfter + 1 {
				if c.muted {
					_, _, _ = in.Admit(1, subjectOf(full), []byte("poison")) // refused
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := in.Admit(1, subjectOf(full), payload); (err == nil) != (c.name == "read") {
					b.Fatal(err)
				}
			}
		})
	}
}
