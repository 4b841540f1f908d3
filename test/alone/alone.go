// Package alone tells tests that ./test/run does not run in its main course, with the race
// detector and several packages at once, from others. It has that with -short.
package alone

import "testing"

// Mark skips a test of one goroutine that takes long: it has no races to find, and the
// detector makes it up to twenty times slower. It runs without.
func Mark(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("one goroutine: it runs without -short, and without the race detector")
	}
}

// Quiet skips a test that judges what a busy machine cannot show. It runs beside nothing
// else.
func Quiet(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it wants the machine to itself: it runs without -short")
	}
}
