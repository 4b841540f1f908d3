package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillgate/spillgate/configs"
)

// mostAnswered bounds what a server's answer may be.
const mostAnswered = 64 << 20

// Server is an admin listener that a command asks.
type Server struct {
	URL       string // or unix:/path
	TokenFile string // "": the token is in the environment, or there is none
	CA        string // file; "": the system's
	Cert, Key string // files with a certificate that says who asks; "": there is none
}

// Bind defines the flag that says where it is.
func (s *Server) Bind(cmd *cobra.Command, fallback string) {
	cmd.Flags().StringVar(&s.URL, "server", fallback, "`URL` of the admin listener, or unix:/path")
}

// BindAccess defines those of one that asks who somebody is.
func (s *Server) BindAccess(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.TokenFile, "token-file", "", "`file` with the token that it is asked with (default: what "+configs.AdminTokenVariable+" says)")
	cmd.Flags().StringVar(&s.Cert, "cert", "", "`file` with a certificate that says who asks, in place of a token")
	cmd.Flags().StringVar(&s.Key, "key", "", "`file` with its key")
	cmd.Flags().StringVar(&s.CA, "ca", "", "`file` with the certificates that sign its own (default: the system's)")
}

// Ask asks it, and returns its answer with the body read. A server that is not reached is ErrUnreachable.
func (s *Server) Ask(ctx context.Context, method, path string, header http.Header, body string) (status int, answered http.Header, text []byte, err error) {
	client, base, err := s.client()
	if err != nil {
		return 0, nil, nil, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("--server: %w", err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	token, err := s.token()
	if err != nil {
		return 0, nil, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, nil, fmt.Errorf("%w: %w (is it an admin listener? --server says where that is)", err, ErrUnreachable)
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(io.LimitReader(resp.Body, mostAnswered))
	if err != nil {
		return 0, nil, nil, fmt.Errorf("%s: %w: %w", base, err, ErrUnreachable)
	}
	return resp.StatusCode, resp.Header, text, nil
}

func (s *Server) token() (string, error) {
	if s.TokenFile == "" {
		return os.Getenv(configs.AdminTokenVariable), nil
	}
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("--token-file: %s has no token, or more than one", s.TokenFile)
	}
	return token, nil
}

// client reaches the server, and base is the URL that it knows it by. It follows no redirects: a token is
// for whom it was given.
func (s *Server) client() (client *http.Client, base string, err error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		if transport.TLSClientConfig.RootCAs, err = CertPool(s.CA); err != nil {
			return nil, "", fmt.Errorf("--ca: %w", err)
		}
	}
	if s.Cert != "" || s.Key != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, "", fmt.Errorf("--cert and --key: %w", err)
		}
		transport.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	base = s.URL
	if path, socket := strings.CutPrefix(s.URL, "unix:"); socket {
		base, transport.Proxy = "http://localhost", nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	} else if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return nil, "", fmt.Errorf("--server: %q is no URL, such as http://127.0.0.1:6071, nor unix:/path", base)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect }}, base, nil
}

var errRedirect = errors.New("it sends elsewhere, which no admin listener does")
