package main

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/edge/httpapi"
)

// A room says how many connections a listener has at a time.
type room struct {
	proxies int // of proxies that are trusted, and over unix sockets
	most    int // of all others
	part    int // of those, of one address
}

// Each takes some ten kilobytes over HTTP, thirty over HTTP/2, some seventy over gRPC, and of a
// client whose header comes slowly up to a hundred and fifty. A proxy asks on as many as it has requests at a time,
// and passes those by that it finds no connection for; those of gRPC have many calls on one. Of
// clients of the edge's own proxy many may have one address, behind a balancer that tells no other.
var rooms = map[string]room{
	listenerHTTP:  {proxies: 16_384, most: 4096, part: 1024},
	listenerGRPC:  {proxies: 4096, most: 4096, part: 1024},
	listenerProxy: {proxies: 16_384, most: 16_384, part: 4096},
}

// Listeners, as the metrics name them.
const (
	listenerHTTP  = "http"
	listenerGRPC  = "grpc"
	listenerProxy = "proxy"
)

// places bounds the connections of a listener, or requests, in all and by address. One beyond is closed at
// once: who waits in a queue knows nothing, and asks nobody else.
type places struct {
	listener string
	room     room
	trusted  httpapi.Proxies
	refusals *httpapi.Refusals

	mu     sync.Mutex // guards what follows, and the connections of addresses
	others int        // connections of those that are no trusted proxies
	of     map[netip.Addr]*address
}

// address is one that has connections; all trusted proxies, and unix sockets, are one.
type address struct {
	who         netip.Addr // not valid of proxies
	connections int
	unread      atomic.Int64 // calls of gRPC that were taken in, and whose message is not there
	watches     atomic.Int64 // streams of health and reflection
	quotas      atomic.Int64 // and of quotas
	open        atomic.Int64 // calls of gRPC that have come, and not ended
}

func newPlaces(listener string, trusted httpapi.Proxies, refusals *httpapi.Refusals) *places {
	return &places{listener: listener, room: rooms[listener], trusted: trusted, refusals: refusals, of: map[netip.Addr]*address{}}
}

// enter takes a connection in; nil: there is no place.
func (p *places) enter(peer string) *address {
	who := httpapi.Caller(peer, p.trusted)
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.of[who]
	if a == nil {
		a = &address{who: who}
	}
	if who.IsValid() {
		if p.others >= p.room.most || a.connections >= p.room.part {
			return nil
		}
		p.others++
	} else if a.connections >= p.room.proxies {
		return nil
	}
	p.of[who] = a
	a.connections++
	return a
}

func (p *places) leave(a *address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a.who.IsValid() {
		p.others--
	}
	if a.connections--; a.connections == 0 {
		delete(p.of, a.who)
	}
}

// take has a request over HTTP/2 have a place, as a connection has: it counts as much, and a
// connection has many of them.
func (p *places) take(peer string) (leave func(), ok bool) {
	a := p.enter(peer)
	if a == nil {
		p.refusals.Tell(p.listener, httpapi.RefusedCalls)
		return nil, false
	}
	return func() { p.leave(a) }, true
}

// bound has a listener keep to the places.
func (p *places) bound(ln net.Listener) net.Listener {
	return &entrance{ln, p, func(c net.Conn, a *address) net.Conn { return &place{Conn: c, places: p, from: a} }}
}

// entrance is a listener whose connections have places.
type entrance struct {
	net.Listener
	places *places
	let    func(net.Conn, *address) net.Conn
}

// Accept implements net.Listener.
func (e *entrance) Accept() (net.Conn, error) {
	for {
		c, err := e.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if a := e.places.enter(c.RemoteAddr().String()); a != nil {
			return e.let(c, a), nil
		}
		_ = c.Close() // whoever is there is told nothing that could fail
		e.places.refusals.Tell(e.places.listener, httpapi.RefusedConnections)
	}
}

// place is a connection that has one, until it is closed.
type place struct {
	net.Conn
	places *places
	from   *address
	left   sync.Once
}

// Close implements net.Conn.
func (p *place) Close() error {
	p.left.Do(func() { p.places.leave(p.from) })
	return p.Conn.Close()
}

// CloseWrite has a refusal be read by who still sends, as net/http does it.
func (p *place) CloseWrite() error {
	if half, ok := p.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return p.Close()
}
