package edge

// prefetch has the cache line at p brought near. It reads nothing, so that it
// races with nobody, and p may be anything: to the collector it is a number.
func prefetch(p uintptr)

// prefetchOwn has the cache lines at p and q brought near to be written.
func prefetchOwn(p, q uintptr)
