package membus

import (
	"container/heap"
	"sync"
	"time"
)

const (
	// maxFlying bounds the messages that are under way on an impaired bus, and
	// maxFlyingBytes their payloads. A message that finds no room is lost.
	maxFlying      = 8192
	maxFlyingBytes = 64 << 20
)

// flight is a message under way.
type flight struct {
	due    time.Time
	n      uint64 // order of departure, which decides between equal times
	size   int
	arrive func()
}

// line calls what arrives when it is due, one at a time and in order of due
// times: so a constant delay reorders nothing. It has a goroutine only while
// something arrives.
type line struct {
	mu       sync.Mutex
	flying   flights        // guarded by mu
	bytes    int            // guarded by mu; sizes of flying
	departed uint64         // guarded by mu
	timer    *time.Timer    // guarded by mu; runs land when the first is due
	landing  bool           // guarded by mu; land runs
	ended    bool           // guarded by mu
	landings sync.WaitGroup // Add only with mu held and ended false
}

// add reports whether there was room for f.
func (l *line) add(f flight) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || len(l.flying) >= maxFlying || l.bytes+f.size > maxFlyingBytes {
		return false
	}
	l.departed++
	f.n = l.departed
	heap.Push(&l.flying, f)
	l.bytes += f.size
	if !l.landing && l.flying[0].n == f.n {
		l.wake()
	}
	return true
}

// wake sets the timer to the first due time. mu is held.
func (l *line) wake() {
	d := time.Until(l.flying[0].due)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.land)
		return
	}
	l.timer.Reset(d)
}

// land lets everything arrive that is due. The timer calls it on a goroutine
// that ends with it; end waits for that.
func (l *line) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.landing || l.ended {
		return
	}
	l.landing = true
	l.landings.Add(1)
	defer l.landings.Done()
	for !l.ended && len(l.flying) > 0 && time.Until(l.flying[0].due) <= 0 {
		f := heap.Pop(&l.flying).(flight)
		l.bytes -= f.size
		l.mu.Unlock()
		f.arrive()
		l.mu.Lock()
	}
	l.landing = false
	if !l.ended && len(l.flying) > 0 {
		l.wake()
	}
}

// end forgets what is under way and returns when nothing arrives any more.
func (l *line) end() {
	l.mu.Lock()
	l.ended = true
	l.flying, l.bytes = nil, 0
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.landings.Wait()
}

// flights is a heap, by due time and then by departure.
type flights []flight

func (f flights) Len() int { return len(f) }
func (f flights) Less(i, j int) bool {
	if f[i].due.Equal(f[j].due) {
		return f[i].n < f[j].n
	}
	return f[i].due.Before(f[j].due)
}
func (f flights) Swap(i, j int) { f[i], f[j] = f[j], f[i] }
func (f *flights) Push(x any)   { *f = append(*f, x.(flight)) }
func (f *flights) Pop() any {
	old := *f
	last := old[len(old)-1]
	old[len(old)-1] = flight{} // or the array keeps the payload
	*f = old[:len(old)-1]
	return last
}
