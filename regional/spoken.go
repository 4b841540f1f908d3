package regional

import (
	"sync"
	"time"
)

const (
	// quietFor is how long a region says nothing before it counts as silent: four
	// times as long as it takes one that has nothing to tell.
	quietFor = 2 * time.Second
	// catchesUp is how long a region that was silent is heard again until it has told
	// what it counted meanwhile.
	catchesUp = 3 * time.Second
)

// spoken is until when each other region has told what it counted. It is safe for
// concurrent use.
type spoken struct {
	mu    sync.Mutex // guards what follows
	peers []voice    // by Config.Peers
}

// voice is how a region is heard. All instants are by our clock; 0: never.
type voice struct {
	last  int64 // heard
	since int64 // heard without a silence
	until int64 // it had told before that silence
}

// heard notes that a region spoke.
func (s *spoken) heard(j int, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &s.peers[j]
	if v.last == 0 || passed(v.last, now, int64(quietFor)) {
		v.since, v.until = now, v.told()
	}
	v.last = now
}

// told is until when it has told what it counted.
func (v *voice) told() int64 {
	if v.last-v.since >= int64(catchesUp) {
		return v.last
	}
	return v.until
}

// told is until when all other regions have told what they counted. One that was
// never heard does not hold up the others: it may not be there yet.
func (s *spoken) told(now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	until := now
	for j := range s.peers {
		if v := &s.peers[j]; v.last > 0 {
			until = min(until, v.told())
		}
	}
	return until
}

// read is how a region is heard.
func (s *spoken) read(j int) voice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peers[j]
}
