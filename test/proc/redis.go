package proc

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os/exec"
	"testing"
)

// RedisServer is a redis-server that a test started.
type RedisServer struct {
	*Process
	Addr string // host:port
}

// Redis starts a redis-server that keeps nothing on disk, on a free port of
// 127.0.0.1; args are added to its command line. After Kill and Restart it is
// empty and has the same address.
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return redis(t, append([]string{"--save", "", "--appendonly", "no"}, args...))
}

// RedisFrom starts a redis-server from a configuration file, but for its
// address and folder, which are as with Redis; args win over the file.
func RedisFrom(t testing.TB, file string, args ...string) *RedisServer {
	t.Helper()
	return redis(t, append([]string{file}, args...))
}

func redis(t testing.TB, args []string) *RedisServer {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("%v; run ./test/run, which installs it (apt-get install redis-server)", err)
	}
	addr := FreeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatalf("redis-server: %v", err)
	}
	args = append(args, "--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir())
	return &RedisServer{Addr: addr, Process: Start(t, Command{
		Name:  "redis-server",
		Path:  path,
		Args:  args,
		Ready: pings(addr),
	})}
}

// pings is a Ready function: the server answers a PING, be it that it wants to
// know who asks.
func pings(addr string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		defer c.Close()
		if deadline, ok := ctx.Deadline(); ok {
			if err := c.SetDeadline(deadline); err != nil {
				return fmt.Errorf("ping redis: %w", err)
			}
		}
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
		switch line {
		case "+PONG\r\n", "-NOAUTH Authentication required.\r\n":
			return nil
		}
		return fmt.Errorf("ping redis: it answered %q", line)
	}
}
