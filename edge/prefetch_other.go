//go:build !amd64 && !arm64

package edge

import "unsafe"

// prefetch does nothing here: batches are decided as single requests are.
func prefetch(unsafe.Pointer) {}
