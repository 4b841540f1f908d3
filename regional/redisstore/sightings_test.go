package redisstore

import "testing"

// What is seen of one tag, and of another by which masters are known, and when
// the first must be written again.
func TestSightings(t *testing.T) {
	type seen struct{ first, second sighting }
	none := sighting{}
	for name, tt := range map[string]struct {
		script  []seen
		changes []bool // of the first tag's epoch
	}{
		"nothing happens": {
			[]seen{{sighting{"c", "A"}, sighting{"d", "B"}}, {sighting{"c", "A"}, sighting{"d", "B"}}},
			[]bool{true, false},
		},
		"another canary": {
			[]seen{{sighting{"c", "A"}, none}, {sighting{"x", "A"}, none}},
			[]bool{true, true},
		},
		"moved to one that was there": {
			[]seen{{sighting{"c", "A"}, sighting{"d", "B"}}, {sighting{"c", "A"}, sighting{"d", "B"}}, {sighting{"c", "B"}, sighting{"d", "B"}}, {sighting{"c", "B"}, none}},
			[]bool{true, false, false, false},
		},
		"moved to one that was seen only once": {
			[]seen{{sighting{"c", "A"}, sighting{"d", "B"}}, {sighting{"c", "B"}, sighting{"d", "B"}}},
			[]bool{true, true},
		},
		"a replica took over": {
			[]seen{{sighting{"c", "A"}, sighting{"d", "A"}}, {sighting{"c", "A2"}, sighting{"d", "A2"}}},
			[]bool{true, true},
		},
		"a replica took over, and the other tag saw it first": {
			[]seen{{sighting{"c", "A"}, sighting{"d", "A"}}, {none, sighting{"d", "A2"}}, {none, sighting{"d", "A2"}}, {sighting{"c", "A2"}, sighting{"d", "A2"}}},
			[]bool{true, false, false, true},
		},
		"a replica took over in the midst of a look": {
			[]seen{{sighting{"c", "A"}, sighting{"d", "A"}}, {sighting{"c", "A"}, sighting{"d", "A2"}}, {sighting{"c", "A2"}, sighting{"d", "A2"}}},
			[]bool{true, false, true},
		},
		"not seen for a while": {
			[]seen{{sighting{"c", "A"}, none}, {none, none}, {sighting{"c", "A"}, none}},
			[]bool{true, false, false},
		},
	} {
		var s sightings
		last := uint64(0)
		for i, see := range tt.script {
			epochs := s.learn(&[tags]sighting{0: see.first, 1: see.second})
			if changed := epochs[0] != last; changed != tt.changes[i] {
				t.Errorf("%s: look %d: the epoch changed: %v, want %v", name, i, changed, tt.changes[i])
			}
			last = epochs[0]
		}
	}
}
