package httpapi

import (
	"net/netip"
	"sync"
)

const (
	// DefaultRoom is what bodies and messages under way take together at the most.
	DefaultRoom = 64 << 20
	// roomParts: of it one address has such a part at the most.
	roomParts = 4
)

// Room bounds the memory that bodies and messages take which are on their way, or are being
// decided about, whatever they came over. Who takes little asks for none (smallBody). It is
// safe for concurrent use.
type Room struct {
	most     int64
	refusals *Refusals

	mu    sync.Mutex // guards taken and of
	taken int64
	of    map[netip.Addr]int64
}

// NewRoom is one of so many bytes. What finds none is told to refusals.
func NewRoom(most int64, refusals *Refusals) *Room {
	return &Room{most: most, refusals: refusals, of: map[netip.Addr]int64{}}
}

// Take takes bytes for a message of an address; false: there are none. Those without an
// address (of a unix socket) are bounded together alone.
func (r *Room) Take(transport string, who netip.Addr, bytes int64) bool {
	if r.take(who, bytes) {
		return true
	}
	r.refusals.Tell(transport, RefusedMemory)
	return false
}

func (r *Room) take(who netip.Addr, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken+bytes > r.most || who.IsValid() && r.of[who]+bytes > r.most/roomParts {
		return false
	}
	r.taken += bytes
	r.of[who] += bytes
	return true
}

// Give gives back what was taken.
func (r *Room) Give(who netip.Addr, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= bytes
	if r.of[who] -= bytes; r.of[who] == 0 {
		delete(r.of, who)
	}
}

// Taken is what is taken.
func (r *Room) Taken() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// Caller is whom bounds go by: a peer's address, or its network of 64 bits over IPv6, where
// hosts have as many addresses as they like. It is not valid for what has none.
func Caller(peer string) netip.Addr {
	at, err := netip.ParseAddrPort(peer)
	if err != nil {
		return netip.Addr{}
	}
	who := at.Addr().Unmap().WithZone("")
	if who.Is6() {
		if network, err := who.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return who
}
