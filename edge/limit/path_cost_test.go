package limit_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/test/alone"
)

// hostile are pieces of paths whose readings take long.
var hostile = map[string]string{
	"dots":           "/../a%2F..%2F",
	"escapes":        "/%2e%2E%5C",
	"slashes":        "/%2F",
	"bad escapes":    "/%2F%zz",
	"backslashes":    `\%5c..`,
	"double slashes": "//a/..",
	"names":          "/a%2Fb",
	"names and dots": "/a%2Fb/../c%5Cd/./",
	"question marks": "/%3F%2F",
	"twice escaped":  "/a%252F%2F",
	"plain":          "/abcdefgh",
	"parameters":     "/a;b=c%2F..;d",
	"semicolons":     ";/%2F;",
	"signs":          ";%3B",
}

// hostilePath is a path of so many bytes that is read in as many ways as there are.
func hostilePath(piece string, size int) string {
	return "//x/" + strings.Repeat(piece, size/len(piece)) + "%2E"
}

// A client may choose a path of 64 KB. Each byte of it costs what one of a shorter path
// does, over all ways to read it.
func TestLongPathsCostWhatTheirBytesDo(t *testing.T) {
	alone.Quiet(t)
	least := func(f func()) (least time.Duration) { // what disturbs it makes it longer
		least = time.Hour
		for range 30 {
			began := time.Now()
			f()
			least = min(least, time.Since(began))
		}
		return least
	}
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		long, short := hostilePath(hostile[name], 64<<10), hostilePath(hostile[name], 4<<10)
		all, some := least(func() { limit.PathReadings(long) }), least(func() { limit.PathReadings(short) })
		t.Logf("%s: %v; %v for a sixteenth", name, all, some)
		if all > 16*6*some { // of a square it would be 256 times as much
			t.Errorf("%s: readings take %v, and those of a path a sixteenth as long %v", name, all, some)
		}
	}
}

// What readings take is told beside one pass over the same path.
func BenchmarkHostilePaths(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		path := hostilePath(hostile[name], 64<<10)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(path)))
			for b.Loop() {
				limit.PathReadings(path)
			}
		})
	}
}
