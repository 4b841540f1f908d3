package telling

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What was compared before a candidate has counted for as long as its rule's limits do is told to nobody: who was
// denied already is none that the version denies newly.
func TestYoungCandidatesAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := setOf(t, uint64(time.Now().UnixMicro()))
		teller := New(Config{Incarnation: 1, Rules: func() *limit.Set { return set }, Decided: counted{}.each})
		a := set.Rules()[0]
		if a.Candidate == nil {
			a = set.Rules()[1]
		}
		trials := func() (newly, alike uint64) {
			_, told := heard(t, teller)
			n := told[rule{"shop", "a"}].Trials
			return n[1][0], n[0][0]
		}
		for range 10 {
			a.Tried(true, false)
		}
		time.Sleep(30 * time.Second)
		if newly, alike := trials(); newly+alike > 0 {
			t.Errorf("half a window on: %d denied newly, and %d admitted by both", newly, alike)
		}
		time.Sleep(time.Minute)
		if newly, alike := trials(); newly+alike > 0 {
			t.Errorf("what was said before is told: %d and %d", newly, alike)
		}
		a.Tried(true, false)
		a.Tried(false, false)
		if newly, alike := trials(); newly != 1 || alike != 1 {
			t.Errorf("once it is as old: %d denied newly, and %d admitted by both, want 1 and 1", newly, alike)
		}
	})
}
