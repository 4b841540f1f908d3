package deltasync

import (
	"fmt"
	"time"
)

// Mistake is what an aggregator sees wrong in the settings of an edge, or of another
// region, so that they can tell whoever runs them. Others than these are a later
// version's.
type Mistake uint8

const (
	MistakeLanes  Mistake = 1 // it has other lanes than the region: its frames are refused
	MistakeSecret Mistake = 2 // its secret is not that of most edges: it counts keys of its own
	MistakePeers  Mistake = 3 // a region that is none of the region's peers
)

func (m Mistake) String() string {
	switch m {
	case MistakeLanes:
		return "lanes"
	case MistakeSecret:
		return "secret"
	case MistakePeers:
		return "peers"
	}
	return ""
}

// LanesError is why Inbox.Admit refuses a frame of a sender with other lanes. Only
// the head of such frames is read, which costs little more than a mute, so that nobody
// is muted for it: who mends the setting is heard with its next frame.
type LanesError struct {
	Sender Sender
	Lanes  int // that it has
	Want   int
	News   bool // that was not said of it for long: log it
}

func (e *LanesError) Error() string {
	return fmt.Sprintf("lanes: %d, this region has %d: set the same number everywhere", e.Lanes, e.Want)
}

const (
	// Of each sender it is news once in newsEvery that it has other lanes, and of so
	// many senders: a PoP whose edges all do must not fill the log.
	newsEvery = time.Hour
	maxNews   = 64
)

// news is of whom it was said of late that they have other lanes.
type news struct {
	since int64
	said  map[Sender]bool
}

// first says that it was not said of the sender, and now is.
func (n *news) first(now int64, from Sender) bool {
	if n.said == nil || now-n.since >= int64(newsEvery) || now < n.since {
		n.since, n.said = now, map[Sender]bool{}
	}
	id := offenderID(from)
	if n.said[id] || len(n.said) >= maxNews {
		return false
	}
	n.said[id] = true
	return true
}

const (
	// secretsAfter is how long an Inbox hears edges before it says whose secret is
	// another: who comes first need not be right. secretsEvery is how often it counts
	// them, and secretsWithin how long an edge that fell silent counts.
	secretsAfter  = 2 * time.Second
	secretsEvery  = time.Second
	secretsWithin = 10 * time.Second
)

// secrets is which cluster secret most edges have, as Up.SecretCheck tells them
// apart.
type secrets struct {
	began, counted int64 // when the first was heard of, and when they were last counted
	ruling         uint64
	others         int // edges that have another
}

// Estranged says that the sender of an admitted frame has another cluster secret
// than most edges of the region that were heard of lately, or, of as many, than
// whoever was heard of first. news: that was not said of it before. Another region
// tells what Secret says there, and has no say in which is right here.
func (in *Inbox) Estranged(now int64, u *Up) (estranged, news bool) {
	if u.SecretCheck == 0 {
		return false, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.secrets.began == 0 && u.Kind == KindEdge {
		in.secrets.began = now
	}
	in.countSecrets(now)
	at := in.senders[senderID{u.Kind, u.Node, u.Name}]
	if at == nil {
		return false, false
	}
	s := at.Value.(*sender)
	estranged = in.secrets.ruling != 0 && u.SecretCheck != in.secrets.ruling
	news = estranged && !s.estranged
	s.estranged = estranged
	return estranged, news
}

// Secret is the check of the cluster secret that most of the region's edges have; 0:
// none is known.
func (in *Inbox) Secret(now int64) uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.countSecrets(now)
	return in.secrets.ruling
}

// OtherSecrets is the number of edges that have another secret than most.
func (in *Inbox) OtherSecrets(now int64) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.countSecrets(now)
	return in.secrets.others
}

// countSecrets brings secrets up to date; in.mu is held.
func (in *Inbox) countSecrets(now int64) {
	k := &in.secrets
	k.began = min(k.began, now) // a clock was set back
	if k.began == 0 || now-k.began < int64(secretsAfter) || now >= k.counted && now-k.counted < int64(secretsEvery) {
		return
	}
	type tally struct {
		edges int
		since int64
	}
	tallies, all, best := map[uint64]tally{}, 0, tally{}
	for at := in.byArrival.Front(); at != nil; at = at.Next() {
		s := at.Value.(*sender)
		if s.secret == 0 || now-s.seen > int64(secretsWithin) {
			continue
		}
		t := tallies[s.secret]
		if t.edges == 0 || s.since < t.since {
			t.since = s.since
		}
		t.edges++
		tallies[s.secret] = t
		all++
	}
	k.counted, k.ruling = now, 0
	for secret, t := range tallies {
		first := t.since < best.since || t.since == best.since && secret < k.ruling
		if t.edges > best.edges || t.edges == best.edges && first {
			best, k.ruling = t, secret
		}
	}
	if k.others = all - best.edges; all == 0 {
		k.began = 0
	}
}
