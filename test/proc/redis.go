package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
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

// Follow makes the server a replica of the one on addr, Lead a master again, with
// what it has copied by then.
func (s *RedisServer) Follow(addr string) {
	s.t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		err = s.obeys("REPLICAOF " + host + " " + port)
	}
	if err != nil {
		s.t.Fatalf("have %s follow %s: %v", s.Addr, addr, err)
	}
}

// Lead is described with Follow.
func (s *RedisServer) Lead() {
	s.t.Helper()
	if err := s.obeys("REPLICAOF NO ONE"); err != nil {
		s.t.Fatalf("have %s lead: %v", s.Addr, err)
	}
}

// Follows returns nil if the server has a master and copies from it.
func (s *RedisServer) Follows() error {
	text, err := s.ask("INFO replication")
	if err == nil && !strings.Contains(text, "master_link_status:up") {
		err = fmt.Errorf("%s has no master: %s", s.Addr, text)
	}
	return err
}

func (s *RedisServer) obeys(command string) error {
	text, err := s.ask(command)
	if err == nil && !strings.HasPrefix(text, "+OK") {
		err = fmt.Errorf("%s: it answered %q", command, text)
	}
	return err
}

// ask sends a command and returns the answer, a text without its length.
func (s *RedisServer) ask(command string) (string, error) {
	c, err := net.DialTimeout("tcp", s.Addr, readyWithin)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(readyWithin)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return "", err
	}
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "$") {
		return line, err
	}
	size, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil {
		return "", fmt.Errorf("%s: it answered %q", command, line)
	}
	text := make([]byte, size)
	_, err = io.ReadFull(in, text)
	return string(text), err
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
