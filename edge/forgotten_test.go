package edge

import (
	"reflect"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// What a counter returned that is no more is told until an authority has answered, thrice at the most.
func TestLastWordsAreTold(t *testing.T) {
	var e escrow
	for holder := uint64(1); holder <= 3; holder++ {
		e.forgotten.say(lastWord{claim: deltasync.Claim{Key: 1, Holder: holder}})
	}
	tell := func(boot time.Duration, most int, want ...uint64) {
		t.Helper()
		var got []uint64
		for _, l := range e.lastWords(boot, most) {
			got = append(got, l.claim.Holder)
		}
		if len(got) != len(want) {
			t.Fatalf("at %v told are %v, want %v", boot, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("at %v told are %v, want %v", boot, got, want)
			}
		}
	}
	const later = claimTimeout + time.Millisecond
	tell(1, 2, 1, 2) // as there are bytes for
	tell(2, 5, 3)
	tell(3, 5)
	e.heard([]deltasync.Grant{{Holder: 2}, {Holder: 9}}, 1)
	e.heard([]deltasync.Grant{{Holder: 3}}, 1) // to what was said before
	e.heard([]deltasync.Grant{{Holder: 1, Home: "us"}}, 1)
	tell(3, 5, 1) // at once, there
	if got := e.forgotten.waiting[0].home; got != "us" {
		t.Errorf("it is told %q, want us", got)
	}
	tell(3+later, 5, 1, 3)
	if n := e.unheard(); n != 2 {
		t.Errorf("%d are not answered, want 2", n)
	}
	tell(3+2*later, 5, 3) // the other was told thrice
	tell(3+3*later, 5)
	if n := e.unheard(); n != 0 || len(e.forgotten.waiting) != 0 {
		t.Errorf("%d are waited for after three times, want none", n)
	}
	for holder := range uint64(mostLastWords + 5) {
		e.forgotten.say(lastWord{claim: deltasync.Claim{Holder: 10 + holder}})
	}
	if n := len(e.forgotten.waiting); n != mostLastWords {
		t.Errorf("%d wait, want %d at the most", n, mostLastWords)
	}
}

// A counter that is forgotten while it has asked for rights returns those, too, once it hears of them.
func TestLastWordsReturnWhatComesLate(t *testing.T) {
	var e escrow
	e.forgotten.say(lastWord{claim: deltasync.Claim{Key: 1, Holder: 7, Granted: 10, Returned: 8}})
	e.heard([]deltasync.Grant{{Holder: 7, Granted: 50}}, 0) // to what it asked before
	for at, want := range []deltasync.Claim{{Key: 1, Holder: 7, Granted: 50, Returned: 48}, {Key: 1, Holder: 7, Granted: 60, Returned: 58}} {
		boot := time.Duration(at + 1)
		if l := e.lastWords(boot, 5); len(l) != 1 || !reflect.DeepEqual(l[0].claim, want) {
			t.Fatalf("told is %+v, want %+v", l, want)
		}
		if at == 0 {
			e.heard([]deltasync.Grant{{Holder: 7, Granted: 60}}, boot)
		}
	}
	e.heard([]deltasync.Grant{{Holder: 7, Granted: 60}}, 2)
	if n := e.unheard(); n != 0 || len(e.forgotten.waiting) != 0 {
		t.Errorf("%d are waited for, want none", n)
	}
}
