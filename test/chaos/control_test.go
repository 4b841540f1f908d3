package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// control is a server that no fault concerns: a Redis that nobody uses. It is
// called as an edge is, and what is slow there too, the machine made slow.
type control struct{ conns []net.Conn }

func newControl(t testing.TB) *control {
	t.Helper()
	c := &control{}
	server := proc.Redis(t)
	for range callers {
		conn, err := net.Dial("tcp", server.Addr)
		if err != nil {
			t.Fatalf("control: %v", err)
		}
		t.Cleanup(func() { conn.Close() })
		c.conns = append(c.conns, conn)
	}
	return c
}

// ping makes calls over one of the connections, until ctx ends.
func (c *control) ping(ctx context.Context, l *load, i, perSecond int) {
	var mine []sample
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.machine = append(l.machine, mine...)
	}()
	answers := bufio.NewReader(c.conns[i])
	pace := time.NewTicker(time.Second * callers / time.Duration(perSecond))
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		faulty, start := l.faulty.Load(), time.Now()
		fmt.Fprint(c.conns[i], "PING\r\n")
		if line, err := answers.ReadString('\n'); err != nil || line != "+PONG\r\n" {
			l.fail(fmt.Errorf("control: %q, %w", line, err))
			return
		}
		mine = append(mine, sample{faulty, time.Since(start)})
	}
}
