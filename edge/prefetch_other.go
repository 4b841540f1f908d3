//go:build !amd64 && !arm64

package edge

// prefetch does nothing here.
func prefetch(uintptr) {}

func prefetchOwn(_, _ uintptr) {}
