package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// A client that sends slower than this holds a connection for nothing:
	// requests are small.
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// writeTimeout leaves room for the profiles of the admin listener, which
	// run for 30 s unless asked otherwise.
	writeTimeout        = 2 * time.Minute
	defaultDrainTimeout = 7 * time.Second
)

// ServerConfig is how a Server runs. The zero value is usable.
type ServerConfig struct {
	// Unready, if set, is called when the server is told to stop, before it
	// closes its listener: API.SetDraining belongs here.
	Unready func()

	// DrainDelay is how long the server then still accepts calls, so that load
	// balancers notice before they meet a closed port. Default: not at all.
	DrainDelay time.Duration

	// DrainTimeout is how long calls under way may take after that, before
	// they are cut off. Default: 7 s, since supervisors kill ten seconds after
	// they asked, and what was counted is still to be told.
	DrainTimeout time.Duration

	// Logger gets what net/http has to say of broken connections. Default:
	// nowhere.
	Logger *slog.Logger
}

// Server serves a handler on one listener until told to stop.
type Server struct {
	cfg  ServerConfig
	http *http.Server
}

// NewServer returns a server of h. It starts nothing.
func NewServer(h http.Handler, cfg ServerConfig) *Server {
	if cfg.DrainTimeout <= 0 {
		cfg.DrainTimeout = defaultDrainTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg, http: &http.Server{
		Handler:           Lingers(h),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
	}}
}

// Serve serves ln until ctx is done, then drains: unready, wait for the drain
// delay, close the listener, and let calls under way finish. It returns nil
// after a clean drain, and always closes ln. A Server serves once.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	served := make(chan error, 1)
	// Shutdown, Close or a broken listener ends it; served is waited for below.
	go func() { served <- s.http.Serve(ln) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %v: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	if s.cfg.Unready != nil {
		s.cfg.Unready()
	}
	if s.cfg.DrainDelay > 0 {
		delay := time.NewTimer(s.cfg.DrainDelay)
		defer delay.Stop()
		select {
		case err := <-served:
			return fmt.Errorf("serve %v while draining: %w", ln.Addr(), err)
		case <-delay.C:
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	err := s.http.Shutdown(stop)
	if err != nil {
		err = fmt.Errorf("drain %v: calls still under way after %v were cut off: %w", ln.Addr(), s.cfg.DrainTimeout, err)
		err = errors.Join(err, s.http.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve %v: %w", ln.Addr(), end))
	}
	return err
}

// unixPrefix marks a listen address as the path of a unix socket.
const unixPrefix = "unix:"

// Listen listens on "host:port", or on "unix:/path", whose socket goes away
// when the listener closes. A socket that a crash left behind is replaced; one
// that somebody answers on is not.
func Listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, unixPrefix)
	if !unix {
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s (write host:port, :port or unix:/path): %w", address, err)
		}
		return listener{ln}, nil
	}
	// Of two that start at once the second would take the first's away, which nobody listens on yet.
	unlock := lockFolder(filepath.Dir(path))
	ln, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(path) {
		if err = os.Remove(path); err == nil {
			ln, err = net.Listen("unix", path)
		}
	}
	unlock()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return ln, nil
}

// listener is one over TCP.
type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		writeSoon(c)
	}
	return c, err
}

// abandoned says that path is a socket on which nobody listens.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close() // it was only to see whether somebody is there
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
