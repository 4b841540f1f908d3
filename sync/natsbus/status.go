package natsbus

// Status is how the bus fares now, for /readyz and metrics.
type Status struct {
	// Connected: a server is there, or its silence was not noticed yet.
	Connected bool
	// Server is its URL, without a password; empty when not connected.
	Server string
	// Reconnects counts connections after the first.
	Reconnects uint64
	// Lost counts messages that arrived here and that receivers were too slow
	// to take.
	Lost uint64
	// Messages and bytes of payload since Connect.
	InMessages, OutMessages, InBytes, OutBytes uint64
}

// Status may be called at any time, after Close too.
func (b *Bus) Status() Status {
	n := b.nc.Stats()
	s := Status{
		Connected:   b.nc.IsConnected(),
		Server:      b.nc.ConnectedUrlRedacted(),
		Reconnects:  n.Reconnects,
		InMessages:  n.InMsgs,
		OutMessages: n.OutMsgs,
		InBytes:     n.InBytes,
		OutBytes:    n.OutBytes,
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s.Lost = b.lost
	for r := range b.own {
		s.Lost += r.lost()
	}
	return s
}
