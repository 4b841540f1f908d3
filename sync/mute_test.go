package deltasync

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// bad has n frames of a sender refused, and returns the last error.
func bad(t *testing.T, in *Inbox, now int64, subject string, n int) error {
	t.Helper()
	var last error
	for range n {
		u, status, err := in.Admit(now, subject, []byte("poison"))
		if u != nil || err == nil || status == StatusOK {
			t.Fatalf("poison is admitted: %v, %v", u, status)
		}
		last = err
	}
	return last
}

func TestInboxMutes(t *testing.T) {
	in := NewInbox("eu", 2)
	e1, e2 := edgeUp("e1", 1), edgeUp("e2", 1)
	admitted := func(now int64, u *Up) bool {
		t.Helper()
		_, status, err := in.Admit(now, subjectOf(u), encode(t, u))
		if err != nil && status != StatusForbidden {
			t.Fatalf("%s: refused with %v, want forbidden", u.Name, status)
		}
		return err == nil
	}
	now := int64(time.Hour)
	bad(t, in, now, subjectOf(e1), muteAfter)
	now += int64(mutePeriod) // another minute: it may again
	bad(t, in, now, subjectOf(e1), muteAfter)
	if !admitted(now, e1) || in.Muted(now) != 0 {
		t.Fatalf("muted after %d bad frames a minute", muteAfter)
	}
	term := mutePeriod
	for round := range 10 {
		// Lanes are counted together: the last one is on the other.
		bad(t, in, now, subjectOf(e1), muteAfter*min(round, 1))
		err := bad(t, in, now, EdgeSubject("eu", 0, "ams", "e1"), 1)
		muted := (*MutedError)(nil)
		if !errors.As(err, &muted) || muted.For != term || !errors.Is(err, ErrFrame) {
			t.Fatalf("round %d: %v, want muted for %v", round, err, term)
		}
		if err := bad(t, in, now, subjectOf(e1), 1); errors.As(err, &muted) {
			t.Fatal("a mute is told twice")
		}
		if admitted(now+int64(tryEvery)-1, e1) || in.Muted(now+int64(term)-1) != 1 {
			t.Fatalf("round %d: heard before %v", round, term)
		}
		if !admitted(now, e2) {
			t.Fatal("another sender is muted too")
		}
		now += int64(term)
		if !admitted(now, e1) || in.Muted(now) != 0 {
			t.Fatalf("round %d: still muted after %v", round, term)
		}
		term = min(2*term, time.Hour)
	}
	now += int64(longestMute)
	bad(t, in, now, subjectOf(e1), muteAfter)
	muted := (*MutedError)(nil)
	if err := bad(t, in, now, subjectOf(e1), 1); !errors.As(err, &muted) || muted.For != mutePeriod {
		t.Errorf("after a good hour: %v, want muted for %v", err, mutePeriod)
	}
	if got := in.Refused()[reasonMuted]; got != 20 {
		t.Errorf("%d frames counted as of muted senders, want 20", got)
	}
	if !admitted(now-2*int64(time.Hour), e1) {
		t.Error("muted by a clock that was set back")
	}
}

// A mute ends with a good frame, of a build that was rolled back: one in tryEvery is read.
// One that goes on with bad ones is muted all the same, and who sends one good among them
// has no more of them read for it.
func TestMuteEndsWithAGoodFrame(t *testing.T) {
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1000)
	for name, u := range map[string]*Up{"edge": edgeUp("e1", 1), "region": regionUp("us", "a1", 1)} {
		for kind, poison := range map[string][]byte{"newer": newer, "malformed": []byte("poison")} {
			t.Run(name+", "+kind, func(t *testing.T) {
				in, now := NewInbox("eu", 2), int64(time.Hour)
				send := func(payload []byte) error {
					_, _, err := in.Admit(now, subjectOf(u), payload)
					return err
				}
				for range 4 * muteAfter { // it is muted for a minute, then for two, and for four
					_ = send(poison)
					now += int64(mutePeriod) / muteAfter / 2
				}
				before := in.Refused()
				if in.Muted(now) != 1 || before[reasonMuted] == 0 || before[kind] < muteAfter {
					t.Fatalf("refused %v, want it muted", before)
				}
				for range 60 { // a minute
					_ = send(poison)
					now += int64(time.Second)
				}
				if after := in.Refused(); after[kind]-before[kind] > 7 {
					t.Errorf("in a minute of a mute %d frames were read, want one in %v", after[kind]-before[kind], tryEvery)
				}
				was := now
				for send(encode(t, u)) != nil {
					if now += int64(time.Second); now-was > int64(tryEvery) {
						t.Fatalf("%v after its build was rolled back it is not heard", tryEvery)
					}
				}
				if err := send(encode(t, u)); err != nil || in.Muted(now) != 0 {
					t.Errorf("the next frame: %v, %d muted", err, in.Muted(now))
				}
				if u.Kind == KindRegion { // its aggregators share a subject
					return
				}
				now += int64(time.Second)
				if err := send(poison); !errors.As(err, new(*MutedError)) {
					t.Errorf("a bad frame soon after: %v, want it muted again", err)
				}
			})
		}
	}
}

// Claims that are good end a mute, too.
func TestMuteEndsWithGoodClaims(t *testing.T) {
	in, subject := NewInbox("eu", 1), ClaimSubject("eu", 0, "eu", "ams", "e1")
	b, err := (&Claims{Region: "eu", Lanes: 1, From: "eu", Pop: "ams", Name: "e1", SentAt: 1}).AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(time.Hour)
	for range muteAfter + 1 {
		_, _, _ = in.AdmitClaims(now, subject, []byte("poison"))
	}
	if _, _, err := in.AdmitClaims(now, subject, b); err == nil || in.Muted(now) != 1 {
		t.Fatal("it is not muted")
	}
	now += int64(tryEvery)
	if _, _, err := in.AdmitClaims(now, subject, b); err != nil || in.Muted(now) != 0 {
		t.Errorf("%v later: %v, %d muted", tryEvery, err, in.Muted(now))
	}
}

// Whoever a frame claims to be of is not muted for it.
func TestInboxMutesBySubject(t *testing.T) {
	in := NewInbox("eu", 2)
	forged := encode(t, edgeUp("victim", 1))
	for range 2 * muteAfter {
		if _, _, err := in.Admit(1, subjectOf(edgeUp("mallory", 1)), forged); err == nil {
			t.Fatal("a forged frame is admitted")
		}
	}
	mustAdmit(t, in, 1, edgeUp("victim", 1))
	if in.Muted(1) != 1 {
		t.Errorf("%d senders muted, want mallory alone", in.Muted(1))
	}
}

// A region is muted when nothing good comes of it; one broken aggregator does
// not silence the others.
func TestInboxMutesRegions(t *testing.T) {
	in := NewInbox("eu", 2)
	u := regionUp("us", "agg-1", 1)
	for range 3 {
		bad(t, in, 1, subjectOf(u), muteAfter)
		mustAdmit(t, in, 1, u)
	}
	bad(t, in, 1, subjectOf(u), muteAfter+1)
	if _, status, err := in.Admit(1, subjectOf(u), encode(t, u)); err == nil || status != StatusForbidden {
		t.Errorf("%v, %v, want it muted", status, err)
	}
}

func TestOffendersBounded(t *testing.T) {
	in := NewInbox("eu", 2)
	steady := subjectOf(edgeUp("steady", 1))
	bad(t, in, 1, steady, muteAfter+1)
	for i := range 2 * maxOffenders {
		bad(t, in, 1, subjectOf(edgeUp(fmt.Sprint("e", i), 1)), 1)
		bad(t, in, 1, steady, 1)
	}
	if n, m := len(in.offenders.known), in.offenders.byLast.Len(); n != maxOffenders || m != n {
		t.Errorf("%d offenders in a map and %d in a list, want %d", n, m, maxOffenders)
	}
	if got := in.Refused()[reasonMuted]; got != 2*maxOffenders || in.Muted(1) != 1 {
		t.Errorf("of a muted sender that keeps on %d frames are refused unread, want all %d", got, 2*maxOffenders)
	}
}

// Names that are invented, a bad frame each, end no mute.
func TestInventedNamesEndNoMute(t *testing.T) {
	in := NewInbox("eu", 2)
	bad(t, in, 1, subjectOf(edgeUp("broken", 1)), muteAfter+1)
	for i := range 2 * maxOffenders {
		bad(t, in, 1, subjectOf(edgeUp(fmt.Sprint("e", i), 1)), 1)
	}
	if got := in.Muted(1); got != 1 {
		t.Errorf("%d senders are muted, want the one that was", got)
	}
	for i := range maxOffenders + 1 { // so many that are muted themselves have room for no more
		bad(t, in, 1, subjectOf(edgeUp(fmt.Sprint("m", i), 1)), muteAfter+1)
	}
	if n, m := len(in.offenders.known), in.Muted(1); n != maxOffenders || m != n {
		t.Errorf("%d offenders, %d of them muted, want %d", n, m, maxOffenders)
	}
}

// A clock that is set back has nobody's offences last longer: who offended ahead of it
// begins anew.
func TestOffencesOfAClockThatWasSetBack(t *testing.T) {
	in, subject := NewInbox("eu", 2), subjectOf(edgeUp("e1", 1))
	muted := (*MutedError)(nil)
	now := int64(10 * time.Hour)
	bad(t, in, now, subject, muteAfter)
	now -= int64(2 * time.Hour)
	if bad(t, in, now, subject, muteAfter); in.Muted(now) != 0 {
		t.Error("muted for what it sent two hours from now")
	}
	bad(t, in, now, subject, 1) // muted
	now -= int64(2 * time.Hour)
	bad(t, in, now, subject, muteAfter)
	if err := bad(t, in, now, subject, 1); !errors.As(err, &muted) || muted.For != mutePeriod {
		t.Errorf("%v, want a mute of %v: it never was muted by this clock", err, mutePeriod)
	}
}

// Frames that were under way as their sender came to be muted have it muted no longer.
func TestFramesUnderWayAsTheirSenderIsMuted(t *testing.T) {
	in, u, why := NewInbox("eu", 2), edgeUp("e1", 1), errors.New("ahead")
	bad(t, in, 1, subjectOf(u), muteAfter+1)
	if got := in.offenders.refuse(2, senderOf(u), why); got != 0 {
		t.Errorf("muted for %v more for a frame that was being read", got)
	}
	in, u = NewInbox("eu", 2), edgeUp("e2", 1)
	for range muteAfter {
		_ = in.Vain(1, u, why)
	}
	if first, next := in.Vain(1, u, why), in.Vain(2, u, why); first == nil || next != nil {
		t.Errorf("frames in vain: %v, then %v, want it muted, and once", first, next)
	}
	if n := in.Muted(1 + int64(mutePeriod)); n != 0 {
		t.Errorf("%d are muted after %v, want none", n, mutePeriod)
	}
}

// Why a sender is muted names it, as what it is, and its last offence.
func TestMutedErrorNamesTheSender(t *testing.T) {
	in := NewInbox("eu", 2)
	for name, u := range map[string]*Up{"edge ams/e1 is muted for 1m0s": edgeUp("e1", 1), "region us is muted for 1m0s": regionUp("us", "", 1)} {
		err := bad(t, in, 1, subjectOf(u), muteAfter+1)
		if text := err.Error(); !strings.HasPrefix(text, name) || !strings.HasSuffix(text, errors.Unwrap(err).Error()) {
			t.Errorf("%v, want %q and why", err, name)
		}
	}
	why, last := errors.New("at first"), errors.New("at last")
	e2 := edgeUp("e2", 1)
	for range muteAfter {
		_ = in.Vain(1, e2, why)
	}
	_ = in.Vain(1, e2, last)
	if _, _, err := in.Admit(1, subjectOf(e2), encode(t, e2)); !errors.Is(err, last) {
		t.Errorf("the next frame is refused: %v, want why the last one was", err)
	}
}

// Whoever goes on with bad frames is not forgotten for others who send one each, muted or
// not yet: with many names a sender would have its count begin anew.
func TestOffenderThatGoesOnIsRemembered(t *testing.T) {
	in := NewInbox("eu", 2)
	steady := subjectOf(edgeUp("steady", 1))
	const others = 2 * maxOffenders / muteAfter // between two
	for i := range muteAfter {
		bad(t, in, 1, steady, 1)
		for j := range others {
			bad(t, in, 1, subjectOf(edgeUp(fmt.Sprint("e", i, "-", j), 1)), 1)
		}
	}
	muted := (*MutedError)(nil)
	if err := bad(t, in, 1, steady, 1); !errors.As(err, &muted) {
		t.Errorf("after %d bad frames, and %d of others between two: %v, want it muted", muteAfter+1, others, err)
	}
}

// What is played back from long ago is refused; what is merely late, and what a
// sender that started again sends, is not.
func TestInboxRefusesReplays(t *testing.T) {
	in := NewInbox("eu", 2)
	newest := edgeUp("e1", 5000)
	mustAdmit(t, in, 1, newest)
	mustAdmit(t, in, 1, edgeUp("e1", 5000-replayWindow))
	old := edgeUp("e1", 5000-replayWindow-1)
	for range 2 {
		if u, status, err := in.Admit(2, subjectOf(old), encode(t, old)); u != nil || status != StatusForbidden || err == nil {
			t.Fatalf("a frame of long ago: %v, %v, %v, want it forbidden", u, status, err)
		}
	}
	if got := in.Refused()[reasonReplayed]; got != 2 {
		t.Errorf("%d counted as replayed, want 2", got)
	}
	if edges, _ := in.Live(2, 0); edges != 0 {
		t.Error("a replay passes for a sign of life")
	}
	again := edgeUp("e1", 1)
	again.SentAt = 6000
	mustAdmit(t, in, 3, again)
	restarted := edgeUp("e1", 1)
	restarted.Incarnation++
	mustAdmit(t, in, 3, restarted)
	mustAdmit(t, in, 3, regionUp("us", "agg-1", 5000))
	mustAdmit(t, in, 3, regionUp("us", "agg-1", 1))
}

// Frames of which nothing is taken are counted by lane: an edge of many whose clock was
// mended has a few to tell again in each.
func TestInboxMutesTheVain(t *testing.T) {
	why := errors.New("ahead")
	in := NewInbox("eu", 2)
	here, there := edgeUp("e1", 1), edgeUp("e1", 1)
	there.Lane = 0
	vain := func(now int64, n int) (last error) {
		for range n {
			if err := in.Vain(now, there, why); err != nil {
				t.Fatalf("muted by the other lane: %v", err)
			}
			if last = in.Vain(now, here, why); last != nil {
				return last
			}
		}
		return nil
	}
	if err := vain(1, muteAfter); err != nil || in.Muted(1) != 0 {
		t.Fatalf("muted after %d: %v", muteAfter, err)
	}
	in.Took(there)
	if err := vain(1, muteAfter); err != nil {
		t.Fatalf("muted though something was taken: %v", err)
	}
	for now := 1 + int64(mutePeriod); now < 10*int64(mutePeriod); now += int64(mutePeriod) { // no longer each time
		if err := vain(now, muteAfter); err != nil {
			t.Fatalf("muted for what was a minute ago: %v", err)
		}
		muted := (*MutedError)(nil)
		if err := in.Vain(now, here, why); !errors.As(err, &muted) || !errors.Is(err, why) || muted.For != mutePeriod || muted.Sender.Name != "e1" {
			t.Errorf("%v, want e1 muted for %v", err, mutePeriod)
		}
		if in.Muted(now+int64(mutePeriod)-1) != 1 || in.Muted(now+int64(mutePeriod)) != 0 {
			t.Errorf("muted for another time than %v", mutePeriod)
		}
	}
	for range 2 * muteAfter { // what a region asks for is of use
		if err := in.Vain(1, regionUp("us", "", 1), why); err != nil {
			t.Fatalf("a region: %v", err)
		}
	}
	if _, _, err := in.Admit(10*int64(mutePeriod), subjectOf(here), encode(t, here)); !errors.Is(err, errMuted) {
		t.Errorf("its next frame: %v, want it muted", err)
	}
}
