// Package embedded runs a nats-server inside the process, for the demo, for
// development and for a region that is one machine. It is the only package
// that links the server.
package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	deltasync "github.com/spillgate/spillgate/sync"
)

const (
	// pingInterval and maxPings notice a client that is frozen, as natsbus
	// notices a server.
	pingInterval = 2 * time.Second
	maxPings     = 2
	// readyWithin is how long the server may take to accept connections.
	readyWithin = 10 * time.Second
)

// ErrNotReady is returned, wrapped, by Start when the server does not come up.
var ErrNotReady = errors.New("embedded nats-server is not ready")

// Options say what the server offers. The zero value is one without listener
// and without JetStream.
type Options struct {
	// Listen is the address for other processes, "127.0.0.1:4222"; port 0
	// takes a free one. Nobody is asked who they are, so anything but a
	// loopback address is refused. Empty: this process only.
	Listen string
	// StoreDir is where JetStream keeps its files; empty: no JetStream.
	StoreDir string
	// Logger hears the server's warnings, and under debug its notices; nil:
	// nobody does.
	Logger *slog.Logger
}

// Server is a nats-server that runs until Shutdown.
type Server struct{ s *server.Server }

// Start starts a server and returns when it is ready. Its goroutines end with
// Shutdown.
func Start(o Options) (*Server, error) {
	opts := &server.Options{
		ServerName:   "embedded",
		DontListen:   true,
		NoSigs:       true, // signals belong to the process
		NoLog:        true, // it has no log of its own; see SetLogger below
		MaxPayload:   deltasync.MaxPayload,
		PingInterval: pingInterval,
		MaxPingsOut:  maxPings,
		JetStream:    o.StoreDir != "",
		StoreDir:     o.StoreDir,
	}
	if o.Listen != "" {
		host, port, err := loopback(o.Listen)
		if err != nil {
			return nil, fmt.Errorf("embedded nats-server: listen: %w", err)
		}
		opts.DontListen, opts.Host, opts.Port = false, host, port
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded nats-server: %w", err)
	}
	l := newLogger(o.Logger)
	s.SetLoggerV2(l, false, false, false)
	s.Start()
	if err := ready(s, l.fatal); err != nil {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, err
	}
	return &Server{s}, nil
}

// ready waits until s accepts connections or says why it never will.
func ready(s *server.Server, fatal <-chan string) error {
	for deadline := time.Now().Add(readyWithin); time.Now().Before(deadline); {
		select {
		case why := <-fatal:
			return fmt.Errorf("%w: %s", ErrNotReady, why)
		default:
		}
		if s.ReadyForConnections(50 * time.Millisecond) {
			return nil
		}
	}
	return fmt.Errorf("%w within %v", ErrNotReady, readyWithin)
}

// loopback splits an address and refuses what others could reach.
func loopback(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, err
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, fmt.Errorf("%q is not a loopback address; for other machines run a nats-server with users and TLS", host)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("port %q; want 0 to 65535", p)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}

// ClientURL is where other processes connect; empty without a listener.
func (s *Server) ClientURL() string {
	if s.s.Addr() == nil {
		return ""
	}
	return s.s.ClientURL()
}

// InProcess is for natsbus.Config.
func (s *Server) InProcess() nats.InProcessConnProvider { return s.s }

// Shutdown ends the server and returns when it has ended. It may be called
// twice.
func (s *Server) Shutdown() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}
