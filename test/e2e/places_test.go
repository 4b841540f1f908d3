package e2e

import (
	"fmt"
	"net"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// Clients have so many connections of an address, and a proxy as many as it has requests: what
// it found none for would pass, as if the edge was dead.
func TestConnectionsOfAnAddress(t *testing.T) {
	const more = 40
	s := newFront(t)
	for listener, of := range map[string]struct {
		addr string
		part int
	}{"http": {address(s.edge.URL), 1024}, "proxy": {s.proxy, 4096}} {
		t.Run(listener, func(t *testing.T) {
			dial := func(from string) {
				for range of.part + more {
					c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}).Dial("tcp", of.addr)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
				}
			}
			refused := func(want float64) {
				proc.Until(t, patience, func() error {
					n, err := proc.Metric(s.edge.Admin, `spillgate_refused_total{listener="`+listener+`",reason="connections"}`)
					if err == nil && n != want {
						err = fmt.Errorf("%v connections were refused, want %v", n, want)
					}
					return err
				})
			}
			dial("127.0.0.3")
			refused(more)
			dial("127.0.0.1") // which is trusted
			if got := s.get(ask{target: "/free", from: "127.0.0.2"}); got.status != 200 {
				t.Errorf("another client: %v", got)
			}
			refused(more)
		})
	}
}
