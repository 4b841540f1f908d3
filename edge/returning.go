package edge

import (
	"github.com/spillgate/spillgate/sync"
)

// comesBack has a bucket that rules come back to begin anew, with what it was under those in
// between: its record may be from before them, too long ago for any of theirs to have taken
// it over, or was made by a request that was matched before they changed and reported late.
// What it has itself counts on. The shard is locked.
func (n *Node) comesBack(known *formers, c *counter, now int64) {
	list := known.of[c.rate.Generation]
	if len(list) == 0 || !c.rate.Bucket() {
		return
	}
	s := n.shard(c.key)
	r := s.find(c.key)
	if r == nil || r.block.rate.Epoch() >= c.rate.Epoch() {
		return
	}
	hash := deltasync.Hash(deltasync.Hash(c.key).Key(c.rate.Generation)) // the same bits flip back
	for _, f := range list {
		if s.find(hash.Key(f.rate.Generation)) == nil {
			continue
		}
		b := s.whole(r)
		r.settle()
		b.memory.exact.Follow(b.rate, now)
		has := legacy{own: b.rate.OwnFill(&b.memory.exact, now), at: now, until: b.sentence(now)}
		has.lines, _ = b.memory.exact.Lines()
		has.most = b.rate.Longest()
		n.forget(s, s.placeOf(c.key), now)
		s.bequeath(n.admit(s, c.key, c.rate, now, nil), has, now)
		return
	}
}
