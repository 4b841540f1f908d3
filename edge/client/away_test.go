package client_test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/client"
	"github.com/spillgate/spillgate/test/proc"
)

// full is the address of a listener that takes no connection, nor refuses one: of an edge
// that is frozen, or behind a firewall that drops.
func full(t *testing.T) (addr string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	t.Cleanup(func() { file.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr = fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
	for range 100 { // they wait in its queue, until that has no room
		conn, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("there is always room in the listener's queue")
	return ""
}

// dials is how many connections are being made.
func dials() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "net/http.(*Transport).dialConn(")
}

// A client of an edge that takes no connection leaves no connection behind for each call: a
// limiter that is away takes no program down.
func TestCallsToFrozenEdgesLeaveNothing(t *testing.T) {
	limiter, err := client.NewHTTP("http://"+full(t), client.Config{Timeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			for range 12 {
				if reply, err := limiter.Check(t.Context(), client.Check{}); !client.IsFault(err) || !reply.Allowed || !reply.Undecided {
					t.Errorf("%+v, %v; want it to pass undecided", reply, err)
				}
			}
		})
	}
	group.Wait()
	if n := dials(); n == 0 || n > 256 {
		t.Errorf("%d connections are being made after 600 calls, want some, and 256 at most", n)
	}
	proc.Until(t, 10*time.Second, func() error {
		if n := dials(); n > 0 {
			return fmt.Errorf("%d connections are still being made", n)
		}
		return nil
	})
}
