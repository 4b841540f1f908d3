package deltasync

import "time"

// Two edges that live by one name, in one PoP, are one to everybody else: their counts are
// told apart by their incarnations, but they are given one share, which both spend. An edge
// that was started again is none: of the process before it a frame or two may come late.

const (
	// namesakeFor is for how long frames of both come before that is told.
	namesakeFor = 2 * time.Second
	// namesakesEvery is how often it is news of an edge.
	namesakesEvery = time.Hour
)

// namesake is when frames of an edge's earlier incarnation came beside those of its own.
type namesake struct {
	since, last int64 // of the earlier incarnation; 0: none did
	found, told int64 // when both were last known to live, and when that was news
}

// earlier notes a frame of an earlier incarnation.
func (n *namesake) earlier(now int64) {
	if n.since == 0 || now-n.last > int64(namesakeFor) || now < n.last {
		n.since = now
	}
	n.last = now
}

// own notes a frame of the edge's own incarnation.
func (n *namesake) own(now int64) {
	if n.since != 0 && now-n.last <= int64(namesakeFor) && n.last-n.since >= int64(namesakeFor) {
		n.found = now
	}
}

func (n *namesake) lives(now int64) bool {
	return n.found != 0 && now-n.found <= int64(namesakeFor) && now >= n.found
}

// Namesake says that another edge lives by the name of the sender of an admitted frame.
// news: that was not said of it of late.
func (in *Inbox) Namesake(now int64, u *Up) (is, news bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	at := in.senders[senderID{u.Kind, u.Node, u.Name}]
	if at == nil {
		return false, false
	}
	n := &at.Value.(*sender).namesake
	if is = n.lives(now); is && (n.told == 0 || now-n.told >= int64(namesakesEvery)) {
		n.told, news = now, true
	}
	return is, news
}

// Namesakes is the number of edges by whose name another one lives.
func (in *Inbox) Namesakes(now int64) (edges int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for at := in.byArrival.Front(); at != nil; at = at.Next() {
		if n := &at.Value.(*sender).namesake; n.lives(now) {
			edges++
		}
	}
	return edges
}
