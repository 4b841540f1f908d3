// Package localredis starts a redis-server for a benchmark, which has no test
// to end it.
package localredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Server is a redis-server of its own on a free port of 127.0.0.1, which keeps
// nothing on disk.
type Server struct {
	Addr    string
	process *exec.Cmd
	dir     string
	client  *redis.Client
}

// Start starts one with further arguments, and waits until it answers.
func Start(args ...string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port for Redis: %w", err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "spillgate-redis")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, dir: dir, client: redis.NewClient(&redis.Options{Addr: addr})}
	s.process = exec.Command("redis-server", append([]string{"--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", port, "--dir", dir}, args...)...)
	if err := s.process.Start(); err != nil {
		s.process = nil
		s.Stop()
		return nil, fmt.Errorf("start redis-server, which ./test/run installs: %w", err)
	}
	for range 100 {
		if err = s.client.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond) // it is starting
	}
	s.Stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

// Stop kills it, and forgets what it had.
func (s *Server) Stop() {
	_ = s.client.Close()
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait() // it was killed
	}
	_ = os.RemoveAll(s.dir)
}

// Info is a number that Redis says of itself: of a section, what follows name.
func (s *Server) Info(section, name string) (float64, error) {
	text, err := s.client.Info(context.Background(), section).Result()
	if err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			digits := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
			if digits < 0 {
				digits = len(rest)
			}
			return strconv.ParseFloat(rest[:digits], 64)
		}
	}
	return 0, errors.New("Redis says nothing of " + name)
}

// Processor is what it has used of processors.
func (s *Server) Processor() (total time.Duration, err error) {
	for _, name := range []string{"used_cpu_user:", "used_cpu_sys:"} {
		seconds, err := s.Info("cpu", name)
		if err != nil {
			return 0, err
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total, nil
}
