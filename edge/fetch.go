package edge

import (
	"unsafe"

	"github.com/spillgate/spillgate/sync"
)

// fetch has the processor bring the place where all counters of a hash stand into
// its cache. That of the place behind it costs more than it gains, as the records of
// busy keys are brought home. The table may be another by the time it is looked at;
// then nothing was gained.
func (s *shard) fetch(hash deltasync.Hash) {
	home := homeOf(deltasync.Key(hash), int(s.size.Load()))
	prefetch(uintptr(unsafe.Pointer(s.first.Load())) + uintptr(home)*unsafe.Sizeof(record{}))
}

// prefetchBlock has all of a block brought near at once: who folds reads all of
// it, in turn.
func prefetchBlock(b *block) {
	const line = 64
	for at := uintptr(0); at < unsafe.Sizeof(*b); at += line {
		prefetch(uintptr(unsafe.Pointer(b)) + at)
	}
}
