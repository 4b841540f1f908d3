package regional

import "testing"

func TestAmong(t *testing.T) {
	few, many := []uint64{0x11, 0x25, 0x4a, 0x93}, make([]uint64, 12)
	for k := range many {
		many[k] = 0x9e3779b97f4a7c15 * uint64(k+1)
	}
	for _, tt := range []struct {
		what      string
		nodes     []uint64
		sum, want uint64
	}{
		{"none", few, 0, 0}, {"one", few, 0x25, 2}, {"three", few, 0x11 ^ 0x4a ^ 0x93, 13}, {"all", few, 0x11 ^ 0x25 ^ 0x4a ^ 0x93, 15}, {"another", few, 0x77, 0},
		{"none of many", many, 0, 0}, {"one of many", many, many[7], 1 << 7}, {"two of many", many, many[2] ^ many[11], 1<<2 | 1<<11}, {"another than many", many, 5, 0},
	} {
		if got := among(tt.nodes, tt.sum); got != tt.want {
			t.Errorf("%s: %b, want %b", tt.what, got, tt.want)
		}
	}
}
