// Package localredis starts a redis-server for a benchmark, which has no test
// to end it.
package localredis

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Server is a redis-server of its own on a free port of 127.0.0.1, which keeps
// nothing on disk.
type Server struct {
	Addr    string
	process *exec.Cmd
	dir     string
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
	s := &Server{Addr: addr, dir: dir}
	s.process = exec.Command("redis-server", append([]string{"--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port", port, "--dir", dir}, args...)...)
	if err := s.process.Start(); err != nil {
		s.process = nil
		s.Stop()
		return nil, fmt.Errorf("start redis-server, which ./test/run installs: %w", err)
	}
	for range 100 {
		if _, err = s.Info("server", "uptime_in_seconds:"); err == nil {
			return s, nil
		}
		time.Sleep(50 * time.Millisecond) // it is starting
	}
	s.Stop()
	return nil, fmt.Errorf("redis-server does not answer: %w", err)
}

// Stop kills it, and forgets what it had.
func (s *Server) Stop() {
	if s.process != nil {
		_ = s.process.Process.Kill()
		_ = s.process.Wait() // it was killed
	}
	_ = os.RemoveAll(s.dir)
}

// PID is its process.
func (s *Server) PID() int { return s.process.Process.Pid }

// Info is a number that Redis says of itself: of a section, what follows name.
func (s *Server) Info(section, name string) (float64, error) {
	c, err := net.Dial("tcp", s.Addr)
	if err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "INFO %s\r\nQUIT\r\n", section); err != nil {
		return 0, fmt.Errorf("ask Redis: %w", err)
	}
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok {
			continue
		}
		digits := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if digits < 0 {
			digits = len(rest)
		}
		return strconv.ParseFloat(rest[:digits], 64)
	}
	return 0, cmp.Or(lines.Err(), errors.New("Redis says nothing of "+name))
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
