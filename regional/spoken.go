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
	self  voice      // when this aggregator was awake
}

// voice is how a region is heard. All instants are by our clock; 0: never.
type voice struct {
	last  int64 // heard
	since int64 // heard without a silence
	until int64 // it had told before that silence
	// recalled says that the store alone knows of it, and this aggregator has not heard it.
	recalled bool
	mute     [gaps]gap
}

// gap is a silence: from when something was last heard until something was again.
type gap struct{ from, to int64 }

// gaps is how many of them are remembered, the last ones.
const gaps = 8

// heard notes that a region spoke.
func (s *spoken) heard(j int, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peers[j].heard(now)
}

// awake notes that this aggregator runs: one that was frozen heard no edge meanwhile.
func (s *spoken) awake(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.self.heard(now)
}

func (v *voice) heard(now int64) {
	if v.last == 0 || passed(v.last, now, int64(quietFor)) {
		if v.last != 0 {
			copy(v.mute[1:], v.mute[:])
			v.mute[0] = gap{v.last, now}
		}
		v.since, v.until = now, v.told()
	}
	v.last, v.recalled = now, false
}

// recall notes until when a region told what it counted that was not heard here.
func (s *spoken) recall(j int, told int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := &s.peers[j]; v.last == 0 || v.recalled && told > v.last {
		*v = voice{last: told, since: told, until: told, recalled: true}
	}
}

// missed says that what edges counted until an instant may never be told: a region, or
// this one if own alone is asked for, was silent from before it until edges no longer kept
// it, which they do for so long. It may have been cut off from the others alone, and hear
// its edges; or have been frozen, and its edges with nobody to tell. Nobody knows which.
func (s *spoken) missed(end, kept int64, own bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := s.self.missed(end, kept)
	for j := range s.peers {
		missed = missed || !own && s.peers[j].missed(end, kept)
	}
	return missed
}

func (v *voice) missed(end, kept int64) bool {
	for _, g := range v.mute {
		if g.from < end && end+kept < g.to {
			return true
		}
	}
	return false
}

// told is until when it has told what it counted.
func (v *voice) told() int64 {
	if v.last-v.since >= int64(catchesUp) {
		return v.last
	}
	return v.until
}

// told is until when all other regions have told what they counted. One that was
// never heard, nor is known of by the store, does not hold up the others: it may not be
// there yet.
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
