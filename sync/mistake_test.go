package deltasync

import (
	"errors"
	"testing"
	"time"
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

// What is refused for its lanes says so, once its sender is muted too.
func TestOtherLanesAreNamed(t *testing.T) {
	in := NewInbox("eu", 4)
	for i := range uint64(2 * muteAfter) {
		u := edgeUp("e", i+1)
		if _, _, err := in.Admit(1, subjectOf(u), encode(t, u)); !errors.Is(err, ErrLanes) {
			t.Fatalf("frame %d: %v, want %v", i, err, ErrLanes)
		}
	}
	if in.Muted(1) != 1 {
		t.Error("the sender is not muted: the test sees nothing")
	}
}
