package deltasync

import (
	"errors"
	"testing"
)

// as does something as the build whose newest version is v.
func as(t *testing.T, v uint32, do func()) {
	t.Helper()
	was := speaks
	defer func() { speaks = was }()
	speaks = spokenBy(v)
	do()
}

// Two builds, one before the other, read all that either writes, and the answer of
// each to the other's frames. A build two before is refused by name.
func TestBuildsUnderstandEachOther(t *testing.T) {
	if speaks.newest != Version {
		t.Fatalf("it speaks %+v, want %d as the newest", speaks, Version)
	}
	for v := uint32(1); v < 6; v++ {
		for _, c := range []struct{ from, to uint32 }{{v, v}, {v, v + 1}, {v + 1, v}} {
			for _, k := range kinds {
				var b []byte
				as(t, c.from, func() { b = encode(t, goldens[k.name]) })
				as(t, c.to, func() {
					if err := k.zero().UnmarshalBinary(b); err != nil {
						t.Errorf("%s of build %d, read by build %d: %v", k.name, c.from, c.to, err)
					}
				})
			}
			var up, down []byte
			as(t, c.from, func() { up = encode(t, goldens["Up"]) })
			as(t, c.to, func() { down = encode(t, &Down{Version: AnswerVersion(up), Status: StatusOK}) })
			as(t, c.from, func() {
				var got Down
				if err := got.UnmarshalBinary(down); err != nil || down[1] != up[1] {
					t.Errorf("build %d answers build %d, which wrote version %d, in version %d: %v", c.to, c.from, up[1], down[1], err)
				}
			})
		}
	}
	var old []byte
	as(t, 2, func() { old = encode(t, goldens["Up"]) })
	as(t, 4, func() {
		v := (*VersionError)(nil)
		if err := new(Up).UnmarshalBinary(old); !errors.As(err, &v) || v.Got != 1 || v.Max != 4 {
			t.Errorf("a frame of two builds before: %v, want it refused by name", err)
		}
	})
}

// Whatever is asked is answered in a version that can be written.
func TestAnswerVersion(t *testing.T) {
	as(t, 5, func() {
		for _, c := range []struct {
			name  string
			frame []byte
			want  uint32
		}{
			{"older than is read", []byte{8, 2}, 3}, {"the oldest", []byte{8, 3}, 3}, {"what is written", []byte{8, 4}, 4},
			{"the newest", []byte{8, 5}, 5}, {"newer", []byte{8, 6}, 5}, {"none", []byte{8, 0}, 4}, {"poison", []byte("poison"), 4}, {"nothing", nil, 4},
		} {
			got := AnswerVersion(c.frame)
			if got != c.want {
				t.Errorf("%s: answered in version %d, want %d", c.name, got, c.want)
			}
			if b := encode(t, &Down{Version: got, Status: StatusForbidden}); b[1] != byte(c.want) {
				t.Errorf("%s: written in version %d, want %d", c.name, b[1], c.want)
			}
		}
		for _, v := range []uint32{2, 6} {
			if _, err := (&Down{Version: v, Status: StatusOK}).AppendBinary(nil); !errors.Is(err, ErrFrame) {
				t.Errorf("version %d is written: %v", v, err)
			}
		}
	})
}
