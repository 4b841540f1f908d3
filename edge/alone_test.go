package edge

import "testing"

// alone marks a test of one goroutine that takes long: it has no races to find,
// and the detector makes it twenty times slower. ./test/run runs it without.
func alone(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine: it runs without -short, and without the race detector")
	}
}
