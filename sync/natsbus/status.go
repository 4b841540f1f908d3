package natsbus

import "fmt"

// Status is how the bus fares now, for /readyz and metrics.
type Status struct {
	// Connected: a server is there, or its silence was not noticed yet.
	Connected bool
	// Server is its URL, without a password; empty when not connected.
	Server string
	// Err is ErrDisconnected and why, as far as is known; nil when connected.
	Err error
	// Reconnects counts connections after the first.
	Reconnects uint64
	// Lost counts messages that arrived here and that receivers were too slow
	// to take.
	Lost uint64
	// Misdirected counts requests whose answers were to go to no inbox. They were not
	// answered.
	Misdirected uint64
	// Messages and bytes of payload since Connect.
	InMessages, OutMessages, InBytes, OutBytes uint64
}

// Status may be called at any time, after Close too. It may wait for the
// client, which writes or connects, for writeTimeout or dialTimeout.
func (b *Bus) Status() Status {
	n := b.nc.Stats()
	s := Status{
		Connected:   b.connected(),
		Reconnects:  n.Reconnects,
		Misdirected: b.strays.Load(),
		InMessages:  n.InMsgs,
		OutMessages: n.OutMsgs,
		InBytes:     n.InBytes,
		OutBytes:    n.OutBytes,
	}
	if s.Connected {
		s.Server = b.nc.ConnectedUrlRedacted()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !s.Connected {
		s.Err = ErrDisconnected
		if b.outage.err != nil {
			s.Err = fmt.Errorf("%w: %w", ErrDisconnected, b.outage.err)
		}
	}
	s.Lost = b.lost
	for r := range b.own {
		s.Lost += r.lost()
	}
	return s
}
