package edge

import (
	"unsafe"

	"github.com/spillgate/spillgate/sync"
)

// fetch has the processor bring the places where so many counters of a hash stand into
// its cache, and the lock before them, to be written: what another processor wrote last
// would else come here twice. Places behind those cost more than they gain, as the
// records of busy keys are brought home. The table may be another by the time it is
// looked at; then nothing was gained.
func (n *Node) fetch(hash deltasync.Hash, counters int) {
	k := uint64(hash) >> 56
	w := &n.wheres[k]
	home := homeOf(deltasync.Key(hash), int(w.size.Load()))
	at := uintptr(unsafe.Pointer(w.first.Load())) + uintptr(home)*unsafe.Sizeof(record{})
	prefetchOwn(uintptr(unsafe.Pointer(&n.shards[k].mu)), at)
	for i := 1; i < counters; i += 2 {
		prefetchOwn(at+uintptr(i)*unsafe.Sizeof(record{}), at+uintptr(min(i+1, counters-1))*unsafe.Sizeof(record{}))
	}
}

// prefetchBlock has all of a block brought near at once: who folds reads all of
// it, in turn.
func prefetchBlock(b *block) {
	for at := uintptr(0); at < unsafe.Sizeof(*b); at += line {
		prefetch(uintptr(unsafe.Pointer(b)) + at)
	}
}
