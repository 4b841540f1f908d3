package main

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/spillgate/spillgate/edge/httpapi"
)

const (
	// mostConnections is how many a listener for decisions has: each takes some ten kilobytes
	// over HTTP, and some seventy over gRPC.
	mostConnections = 4096
	// connectionParts: of them one address has such a part at the most.
	connectionParts = 4
)

// places bounds the connections of a listener, in all and by address. One beyond is closed at
// once: who waits in a queue knows nothing, and asks nobody else.
type places struct {
	listener   string // as the metrics name it
	most, part int
	refusals   *httpapi.Refusals

	mu   sync.Mutex // guards open, of, and the connections of addresses
	open int
	of   map[netip.Addr]*address
}

// address is one that has connections.
type address struct {
	who         netip.Addr // not valid of what has none
	connections int
	unread      atomic.Int64 // calls of gRPC that were taken in, and whose message is not there
}

func newPlaces(listener string, refusals *httpapi.Refusals) *places {
	return &places{listener: listener, most: mostConnections, part: mostConnections / connectionParts, refusals: refusals, of: map[netip.Addr]*address{}}
}

// enter takes a connection in; nil: there is no place.
func (p *places) enter(peer string) *address {
	who := httpapi.Caller(peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.of[who]
	if p.open >= p.most || a != nil && who.IsValid() && a.connections >= p.part {
		return nil
	}
	if a == nil {
		a = &address{who: who}
		p.of[who] = a
	}
	p.open++
	a.connections++
	return a
}

func (p *places) leave(a *address) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	if a.connections--; a.connections == 0 {
		delete(p.of, a.who)
	}
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
