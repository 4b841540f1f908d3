package deltasync

import "testing"

// TestTook: what a reply says of single deltas. An edge that takes a refusal
// for an acknowledgement loses counts; the other way round it sends too often.
func TestTook(t *testing.T) {
	named := []uint32{1, 3}
	for _, tt := range []struct {
		name    string
		status  Status
		refused []uint32
		took    [5]bool
	}{
		{"ok", StatusOK, nil, [5]bool{true, true, true, true, true}},
		{"counts are good, weights are missing", StatusNotOwner, nil, [5]bool{true, true, true, true, true}},
		{"taken, not yet stored", StatusStoreDown, nil, [5]bool{true, true, true, true, true}},
		{"the same, but for what is named", StatusStoreDown, named, [5]bool{true, false, true, false, true}},
		{"clock, named", StatusClock, named, [5]bool{true, false, true, false, true}},
		{"overloaded, named", StatusOverloaded, named, [5]bool{true, false, true, false, true}},
		{"shapes, named", StatusForbidden, named, [5]bool{true, false, true, false, true}},
		{"clock, of an older build", StatusClock, nil, [5]bool{}},
		{"overloaded, of an older build", StatusOverloaded, nil, [5]bool{}},
		{"the whole frame", StatusForbidden, nil, [5]bool{}},
		{"the whole frame, not understood", StatusUnsupported, nil, [5]bool{}},
		{"a status of later days", 99, nil, [5]bool{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := Down{Status: tt.status, Refused: tt.refused}
			for i, want := range tt.took {
				if got := d.Took(i); got != want {
					t.Errorf("Took(%d) with %s and %v = %v, want %v", i, tt.status, tt.refused, got, want)
				}
			}
		})
	}
	if d := (Down{Status: StatusClock, Refused: named}); d.Took(-1) || d.Took(1<<32+1) {
		t.Error("Took of what no frame can hold is true")
	}
}
