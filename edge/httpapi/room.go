package httpapi

import (
	"net/http"
	"net/netip"
	"sync"
	"time"
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

	mu    sync.Mutex // guards taken, of and given
	taken int64
	of    map[netip.Addr]int64
	given chan struct{} // is closed as some is given back; nil: nobody waits
}

// NewRoom is one of so many bytes. What finds none is told to refusals.
func NewRoom(most int64, refusals *Refusals) *Room {
	return &Room{most: most, refusals: refusals, of: map[netip.Addr]int64{}}
}

// Take takes bytes for a message of an address; false: there are none. Those without an
// address (see Caller) are bounded together alone.
func (r *Room) Take(transport string, who netip.Addr, bytes int64) bool {
	if r.Try(who, bytes) {
		return true
	}
	r.refusals.Tell(transport, RefusedMemory)
	return false
}

// Try is Take, and tells nobody.
func (r *Room) Try(who netip.Addr, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken+bytes > r.most || who.IsValid() && r.of[who]+bytes > r.most/roomParts {
		return false
	}
	r.taken += bytes
	r.of[who] += bytes
	return true
}

// Wait is Take, but waits until there is room, for so long at the most.
func (r *Room) Wait(transport string, who netip.Addr, bytes int64, most time.Duration) bool {
	late := time.NewTimer(most)
	defer late.Stop()
	for {
		given := r.whenGiven() // before it is asked: what is given meanwhile is not missed
		if r.Try(who, bytes) {
			return true
		}
		select {
		case <-given:
		case <-late.C:
			r.refusals.Tell(transport, RefusedMemory)
			return false
		}
	}
}

func (r *Room) whenGiven() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given == nil {
		r.given = make(chan struct{})
	}
	return r.given
}

// Give gives back what was taken.
func (r *Room) Give(who netip.Addr, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given != nil {
		close(r.given)
		r.given = nil
	}
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
// hosts have as many addresses as they like. It is not valid for what has none, and for proxies
// that are trusted: they ask for many, and what they are refused they let pass.
func Caller(peer string, trusted Proxies) netip.Addr {
	at, err := netip.ParseAddrPort(peer)
	if err != nil || trusted.Contains(at.Addr()) {
		return netip.Addr{}
	}
	return networkOf(at.Addr())
}

// networkOf is an address, or its network of 64 bits over IPv6.
func networkOf(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.Addr()
		}
	}
	return addr
}

// ClientOf is whose a request is, as client_ip has it: an address, or its network of 64 bits over
// IPv6. It is not valid where nobody told one.
func (a *API) ClientOf(r *http.Request) netip.Addr {
	client, believed := a.PeerOf(r)
	if believed {
		client = clientOf(r.Header[forwardedFor], client, a.cfg.TrustedProxies)
	}
	addr, err := netip.ParseAddr(client)
	if err != nil {
		return netip.Addr{}
	}
	return networkOf(addr)
}
