package regional_test

import (
	"testing"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// Keys near their limit are not forgotten for new ones that are far from it,
// however large the frame is in which these come: what is being stored makes room
// when it is. The store need not have them any more.
func TestFloodInLargeFramesLeavesWhatIsNearItsLimit(t *testing.T) {
	const limited, frame = 1200, 2500
	r := small(t, regional.Config{Boot: still, MaxKeys: 3000}, forgetful{})
	before, flood := &edge{name: "before"}, &edge{name: "flood"}
	before.used(r, 90, 1, limited)
	for i := range 8 {
		down := flood.used(r, 1, deltasync.Key(10_000+i*frame), frame)
		if down.Status != deltasync.StatusOK || len(down.Refused) > 0 {
			t.Errorf("frame %d of the flood: %v, %d deltas refused", i, down.Status, len(down.Refused))
		}
	}
	forgotten := limited - holds(r, 1, limited)
	if forgotten > 0 {
		t.Errorf("%d of %d keys at 90 %% are forgotten for a flood of keys at 1 %%", forgotten, limited)
	}
}
