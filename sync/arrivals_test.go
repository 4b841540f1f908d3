package deltasync

import (
	"strings"
	"testing"
	"time"
)

// admits says whether a frame is taken.
func admits(t *testing.T, in *Inbox, now int64, u *Up) bool {
	t.Helper()
	_, status, err := in.Admit(now, subjectOf(u), encode(t, u))
	if err != nil && (status != StatusForbidden || !strings.Contains(err.Error(), "it arrived before")) {
		t.Fatalf("refused with %v: %v", status, err)
	}
	return err == nil
}

// What arrived of an earlier incarnation is refused when that was replaced long ago,
// by frames or by time; an edge that starts again with its clock behind is heard.
func TestInboxRefusesFormerIncarnations(t *testing.T) {
	of := func(incarnation, seq uint64) *Up {
		u := edgeUp("e1", seq)
		u.Incarnation, u.SentAt = incarnation, int64(incarnation*10000+seq)
		return u
	}
	now := int64(time.Hour)
	for _, c := range []struct {
		name string
		last uint64 // number of the newer one's latest frame
		wait time.Duration
		want bool
	}{{"just now", 1, 0, true}, {"many frames ago", replayWindow + 1, 0, false}, {"long ago", 1, replacedFor, false}} {
		in := NewInbox("eu", 2)
		mustAdmit(t, in, now, of(1, 7))
		mustAdmit(t, in, now, of(2, 1))
		mustAdmit(t, in, now, of(2, c.last))
		for range 2 {
			if got := admits(t, in, now+int64(c.wait), of(1, 7)); got != c.want {
				t.Errorf("%s: taken %v, want %v", c.name, got, c.want)
			}
		}
		for seq := uint64(8); seq < 3*muteAfter; seq++ { // that edge lives, and its clock was set back before it started
			mustAdmit(t, in, now+int64(c.wait), of(1, seq^1)) // two by two the later one arrives first
		}
	}
	in := NewInbox("eu", 2)
	mustAdmit(t, in, now, of(2, 1)) // the first that is heard of it: one of us has just started
	mustAdmit(t, in, now, of(1, 7))
	mustAdmit(t, in, now, of(1, 7)) // a copy that came late
	if admits(t, in, now+int64(replacedFor), of(1, 7)) {
		t.Error("a frame of an earlier incarnation is taken long after the next was heard of first")
	}

	in = NewInbox("eu", 2)
	mustAdmit(t, in, now, of(50, replayWindow+1))
	for seq := range uint64(3 * muteAfter) { // of it nothing was heard before
		mustAdmit(t, in, now, of(3, seq+1))
	}
	if admits(t, in, now, of(3, 5)) {
		t.Error("a frame of an earlier incarnation is taken twice")
	}
	for i := range uint64(3 * maxFormers) {
		mustAdmit(t, in, now, of(4+i, 1))
	}
	if n := len(in.senders[senderID{KindEdge, NodeID("eu", "ams", "e1"), "e1"}].Value.(*sender).formers); n != maxFormers {
		t.Errorf("%d earlier incarnations are remembered, want %d", n, maxFormers)
	}
}

// A region's frame of long ago is taken once, as its aggregator may have started again
// with its clock behind; others of the region have numbers of their own.
func TestInboxRefusesReplaysOfRegions(t *testing.T) {
	in := NewInbox("eu", 2)
	mustAdmit(t, in, 1, regionUp("us", "agg-1", 5000))
	for seq := range uint64(2 * replayWindow) { // it counts anew, at earlier times
		mustAdmit(t, in, 1, regionUp("us", "agg-1", seq+1))
		mustAdmit(t, in, 1, regionUp("us", "agg-2", seq+1))
	}
	for _, seq := range []uint64{1, replayWindow, 2 * replayWindow} {
		if admits(t, in, 1, regionUp("us", "agg-1", seq)) {
			t.Errorf("frame %d, far behind, is taken again", seq)
		}
	}
	mustAdmit(t, in, 1, regionUp("us", "agg-2", 2*replayWindow)) // one that is doubled, and not far behind
	bad(t, in, 1, subjectOf(regionUp("us", "", 1)), 1)
	if got := in.Refused()[reasonReplayed]; got != 3 {
		t.Errorf("%d counted as replayed, want 3", got)
	}
}

// A region's aggregator that starts again and again with the same clock, which is
// behind, is heard each time, though the bus loses its first frames; what it sent then
// is not taken twice.
func TestInboxHearsRegionsThatStartWithAStaleClock(t *testing.T) {
	of := func(life, seq int) *Up {
		u := regionUp("us", "agg-1", uint64(seq))
		u.SentAt = int64(seq*1000 + life)
		return u
	}
	for _, lost := range []int{0, 1, 100} {
		in := NewInbox("eu", 2)
		newest := of(1, 5000)
		newest.SentAt = int64(time.Hour)
		mustAdmit(t, in, 1, newest)
		refused := 0
		for life := 2; life < 6; life++ {
			for seq := lost + 1; seq <= 1000; seq++ {
				if !admits(t, in, 1, of(life, seq)) {
					refused++
				}
			}
			for _, seq := range []int{lost + 1, 128, 1000} {
				if admits(t, in, 1, of(life, seq)) {
					t.Errorf("%d lost: frame %d of life %d, far behind, is taken again", lost, seq, life)
				}
			}
		}
		if most := 3 * lost; refused > most { // until it comes to a number that is marked
			t.Errorf("%d lost: %d frames are refused of an aggregator that started three times more, want %d at the most", lost, refused, most)
		}
	}
}
