package adminapi

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spillgate/spillgate/configs"
)

// Access knows who may do what, by a file of tokens, which it reads again when it changes. Where there is
// none (nil) nobody is asked who he is, and who reaches the listener may look, and change nothing.
type Access struct {
	file string
	log  *slog.Logger

	mu     sync.Mutex // guards what follows
	tokens []configs.Token
	read   stamp
}

// stamp tells whether a file is another.
type stamp struct {
	at   time.Time
	size int64
}

func stampOf(file string) (stamp, error) {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, nil
}

// OpenAccess reads a file of tokens. The error is a *configs.RulesError where it was read and is not good.
func OpenAccess(file string, log *slog.Logger) (*Access, error) {
	a := &Access{file: file, log: log}
	read, err := stampOf(file)
	if err != nil {
		return nil, fmt.Errorf("admin.tokens: %w", err)
	}
	if a.tokens, err = configs.ReadTokens(file); err != nil {
		return nil, err
	}
	a.read = read
	return a, nil
}

// current are the tokens that are good now. Where the file is not, those of before are.
func (a *Access) current() []configs.Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	read, err := stampOf(a.file)
	if err == nil && read == a.read {
		return a.tokens
	}
	tokens := a.tokens
	if err == nil {
		tokens, err = configs.ReadTokens(a.file)
	}
	if read != a.read {
		a.read = read
		if err != nil {
			a.log.Error("admin tokens are not read anew, those of before go on", "err", err)
		} else {
			a.log.Info("admin tokens are read anew", "tokens", len(tokens))
		}
	}
	if err == nil {
		a.tokens = tokens
	}
	return a.tokens
}

// caller is who asks.
type caller struct {
	name string // "": nobody was asked
	role configs.Role
	of   *configs.Token // nil: nobody was asked
	from string         // address
}

// touches says that the caller is of a namespace; "" is all.
func (c *caller) touches(namespace string) bool { return c.of == nil || c.of.MayTouch(namespace) }

// who is the caller of a request, who may do what takes a role.
func (a *Access) who(r *http.Request, need configs.Role) (*caller, *Problem) {
	if a == nil {
		if need != configs.RoleViewer {
			return nil, problem(http.StatusForbidden, "set admin.tokens: aggregator auth token makes one", "nothing is changed by who does not say who he is")
		}
		return &caller{role: configs.RoleViewer, from: r.RemoteAddr}, nil
	}
	var token *configs.Token
	switch scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); {
	case strings.EqualFold(scheme, "Bearer") && secret != "":
		token = configs.TokenOf(a.current(), strings.TrimSpace(secret), time.Now())
	case r.TLS != nil && len(r.TLS.VerifiedChains) > 0: // a certificate that nobody we trust has signed says nothing
		token = configs.TokenOfCertificate(a.current(), namesOf(r.TLS.VerifiedChains[0][0]), time.Now())
	default:
		return nil, problem(http.StatusUnauthorized, "Authorization: Bearer sgt_...", "a token is wanted")
	}
	switch {
	case token == nil:
		return nil, problem(http.StatusUnauthorized, "see admin.tokens", "this token, or certificate, is not known here, or has expired")
	case !token.Role.Allows(need):
		return nil, problem(http.StatusForbidden, "", fmt.Sprintf("%s is %s, and this takes the role %s", token.Name, token.Role, need))
	}
	return &caller{name: token.Name, role: token.Role, of: token, from: r.RemoteAddr}, nil
}

// namesOf are those that a certificate is of.
func namesOf(cert *x509.Certificate) []string {
	names := append([]string{cert.Subject.CommonName}, cert.DNSNames...)
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	return names
}

type callerKey struct{}

// only has a handler serve those alone who may do what takes a role.
func (a *Access) only(need configs.Role, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, p := a.who(r, need)
		if p != nil {
			if a != nil {
				a.log.Warn("an admin request is refused", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "why", p.Detail)
			}
			if p.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="spillgate"`)
			}
			writeProblem(w, p)
			return
		}
		h(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
	}
}

// callerOf is who asks, of a request that only passed on.
func callerOf(r *http.Request) *caller {
	c, _ := r.Context().Value(callerKey{}).(*caller)
	return c
}
