package deltasync

import (
	"testing"
	"time"
)

// Two processes that tell counts by one name are noticed when both have gone on for a while;
// one that takes another's place, and its frames under way, are none, nor is one that was
// started again with its clock behind.
func TestNamesakes(t *testing.T) {
	const at = 100 * time.Millisecond
	for _, tt := range []struct {
		name  string
		talks func(i int) []uint64 // the incarnations that send something in an interval
		want  bool
	}{
		{"one alone", func(int) []uint64 { return []uint64{5} }, false},
		{"two", func(int) []uint64 { return []uint64{5, 4} }, true},
		{"two, of which one says little", func(i int) []uint64 { return []uint64{5, 4}[:1+(i%10+1)/10] }, true},
		{"one that was started again", func(i int) []uint64 {
			switch {
			case i < 30:
				return []uint64{4}
			case i < 45: // and frames that are late
				return []uint64{4, 5}
			}
			return []uint64{5}
		}, false},
		{"one that was started again with its clock behind", func(i int) []uint64 {
			if i < 30 {
				return []uint64{5}
			}
			return []uint64{4}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, now, seqs := NewInbox("eu", 2), int64(time.Hour), map[uint64]uint64{}
			found, news := false, 0
			for i := range 60 {
				now += int64(at)
				for _, incarnation := range tt.talks(i) {
					seqs[incarnation]++
					u := edgeUp("e1", seqs[incarnation])
					u.Incarnation, u.SentAt = incarnation, now
					mustAdmit(t, in, now, u)
					is, fresh := in.Namesake(now, u)
					if found = found || is; fresh {
						news++
					}
				}
			}
			want := 0
			if tt.want {
				want = 1
			}
			if found != tt.want || news != want || in.Namesakes(now) != want {
				t.Errorf("found %v, %d times news, %d now, want %v", found, news, in.Namesakes(now), tt.want)
			}
			if n := in.Namesakes(now + int64(namesakeFor) + 1); n != 0 {
				t.Errorf("%d when nothing is heard any more", n)
			}
		})
	}
}
