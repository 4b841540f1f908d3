package edge

import "unsafe"

// prefetch has the cache line at p brought near. It reads nothing, so that it
// races with nobody, and p may point anywhere.
//
//go:noescape
func prefetch(p unsafe.Pointer)
