package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spillgate/spillgate/edge/httpapi"
)

const (
	// readHeaderTimeout is how long a client may take to send a header.
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// maxConnStreams is how many requests a connection of HTTP/2 has at a time, connWindow how
	// much of all their bodies comes that nobody reads, of which each has a window of its own: what
	// waits keeps no others back, and maxFrame the largest frame, for which there is memory once it begins: net/http's are 250,
	// 1 MiB, 1 MiB and 1 MiB.
	maxConnStreams = 100
	connWindow     = maxConnStreams * bodyWindow
	maxFrame       = 16 << 10
	// drainTimeout is how long requests may take once the proxy is told to stop. Those
	// that last, as streams and switched connections, are cut off then: for their clients
	// it is as any other loss of a connection.
	drainTimeout = 7 * time.Second
	// cutTimeout is how long it then takes to notice.
	cutTimeout = time.Second
)

// Serve serves ln, HTTP/1 and HTTP/2, over TLS where there is a certificate, until ctx ends; then it closes it, lets
// requests under way finish, and cuts off those that do not. It returns when all have
// ended, and always closes ln. A Proxy serves once. Requests come to front, that has the
// Proxy serve them; nil: they come to the Proxy itself.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener, front http.Handler) error {
	if front == nil {
		front = p
	}
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	server := &http.Server{
		Handler:           httpapi.Lingers(&taken{front, p.cfg.ClientTimeout, p.cfg.Enter}),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(p.cfg.Logger.Handler(), slog.LevelWarn),
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxConnStreams, MaxReceiveBufferPerStream: bodyWindow, MaxReceiveBufferPerConnection: connWindow, MaxReadFrameSize: maxFrame,
			WriteByteTimeout: p.cfg.ClientTimeout, // or who reads nothing is not told that his streams end, and they do not
		},
		// "OPTIONS *" is asked about, counted and passed on, as all else.
		DisableGeneralOptionsHandler: true,
	}
	server.Protocols.SetHTTP1(true)
	serve := server.Serve
	if cert := p.cfg.Certificate; cert != nil {
		server.Protocols.SetHTTP2(true)
		server.TLSConfig = &tls.Config{GetCertificate: cert.get}
		serve = func(ln net.Listener) error { return server.ServeTLS(ln, "", "") }
	} else {
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	served := make(chan error, 1)
	go func() { served <- serve(ln) }() // Shutdown or a broken listener ends it; it is waited for below
	select {
	case err := <-served:
		return fmt.Errorf("serve the proxy at %v: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.drain)
	defer cancel()
	err := server.Shutdown(stop)
	if err == nil && !p.await(stop) { // of switched connections net/http does not know
		err = stop.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		p.cfg.Logger.Info("the proxy cuts off requests that last", "after", p.drain)
		err = server.Close()
	}
	cut()
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	late, cancelLate := context.WithTimeout(context.WithoutCancel(ctx), cutTimeout)
	defer cancelLate()
	if !p.await(late) {
		err = errors.Join(err, errors.New("requests are still under way"))
	}
	if err != nil {
		return fmt.Errorf("drain the proxy at %v: %w", ln.Addr(), err)
	}
	return nil
}

// await waits for all handlers, until ctx ends.
func (p *Proxy) await(ctx context.Context) bool {
	ended := make(chan struct{})
	go func() { // the handlers end it; who waits for it is below, or the process ends
		p.open.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}
