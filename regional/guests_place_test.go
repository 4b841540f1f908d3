package regional

import (
	"testing"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// What a guest knows is pushed when the store has said the rest. One that is given a place
// before that, as an edge asks for its key, is pushed at once: the store may have nothing
// to add.
func TestGuestThatFindsAPlaceIsPushed(t *testing.T) {
	for _, tt := range []struct {
		charges uint64
		want    bool
	}{{900, true}, {10, false}} {
		f := newSharers(t, second, "us")
		const key = deltasync.Key(2)
		c := &counter{guest: true}
		c.reshape(second)
		f.l.guests = map[deltasync.Key]*counter{key: c}
		f.l.again(key, c)
		c.join(FromRegion, crdt.Replica{Node: f.nodes[0]}, []crdt.Cell{{Slice: sliceAt(second, f.now), Charges: tt.charges}}, 0, f.now)
		if f.changed(f.l, key, c, f.now); c.pushed {
			t.Errorf("%d of 1000 are pushed before the store has said the rest", tt.charges)
		}
		if got := f.open(f.l, key, second, nobody, false, f.now); got != c || c.guest || len(f.l.guests) != 0 {
			t.Fatalf("it has no place: %+v", got)
		}
		if c.pushed != tt.want {
			t.Errorf("%d of 1000 are pushed is %t, want %t", tt.charges, c.pushed, tt.want)
		}
	}
}
