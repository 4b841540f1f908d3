package world

import (
	"encoding"

	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/sync"
)

// older is a frame as the first build of its version wrote it, or read it: without
// buckets, penalties, the identity of the store and the deltas that were refused.
// Readers pass over what they do not know, and take what is missing for zero.
func older[F any, P interface {
	*F
	encoding.BinaryUnmarshaler
	encoding.BinaryAppender
}](payload []byte) []byte {
	var frame F
	if P(&frame).UnmarshalBinary(payload) != nil {
		return payload // who gets it will say so
	}
	switch f := any(&frame).(type) {
	case *deltasync.Up:
		for i := range f.Sections {
			sec := &f.Sections[i]
			sec.Shape = plain(sec.Shape)
			for j := range sec.Deltas {
				sec.Deltas[j].Carry, sec.Deltas[j].Until = crdt.Carry{}, 0
			}
		}
	case *deltasync.Down:
		f.Refused, f.Store = nil, 0
		for i := range f.Totals {
			f.Totals[i] = sums(f.Totals[i])
		}
	case *deltasync.Hot:
		for i := range f.Sections {
			sec := &f.Sections[i]
			sec.Shape = plain(sec.Shape)
			for j := range sec.Keys {
				sec.Keys[j].Totals = sums(sec.Keys[j].Totals)
			}
		}
	}
	b, err := P(&frame).AppendBinary(nil)
	if err != nil {
		panic(err) // it has less than what was read
	}
	return b
}

// plain is a shape without what makes it a bucket's.
func plain(s deltasync.Shape) deltasync.Shape {
	s.Refill, s.RefillPer, s.Floor = 0, 0, 0
	return s
}

// sums are the counts alone.
func sums(t deltasync.Totals) deltasync.Totals {
	return deltasync.Totals{Others: t.Others, Peers: t.Peers}
}
