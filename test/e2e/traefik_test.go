package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestTraefik has a stand-in for Traefik, which is no package and takes longer to build than
// all that ./test/run does: it asks as Traefik's documentation says that forwardAuth does,
// what the shipped file tells it to. TRAEFIK=/path/of/traefik drives the program itself.
func TestTraefik(t *testing.T) {
	t.Parallel()
	forwards(t, func(t *testing.T, edge, application string) string {
		ask := proc.FreeAddr(t)
		others := []string{"127.0.0.1:8080", edge, "127.0.0.1:9000", application, "127.0.0.1:8099", ask}
		if path := os.Getenv("TRAEFIK"); path != "" {
			addr, own := proc.FreeAddr(t), proc.FreeAddr(t)
			proc.Start(t, proc.Command{
				Name: "traefik", Path: path, Dir: t.TempDir(), Env: proc.Environ(),
				Ready: proc.Answers("http://" + own + "/api/http/routers/application@file"),
				Args: []string{"--entrypoints.web.address=" + addr, "--entrypoints.ask.address=" + ask, "--entrypoints.ask.forwardedheaders.trustedips=127.0.0.0/8",
					"--ping=true", "--ping.manualrouting=true", "--entrypoints.traefik.address=" + own, "--api.insecure=true",
					"--providers.file.filename=" + shipped(t, "traefik/spillgate.yaml", others...), "--global.checknewversion=false", "--global.sendanonymoususage=false"},
			})
			return addr
		}
		server := httptest.NewServer(traefik(t, shippedText(t, "traefik/spillgate.yaml", others...)))
		t.Cleanup(server.Close)
		return address(server.URL)
	}, passes{body: true, failOpen: true, tells: true})
}

// traefik is a proxy with the settings of a file of ours. With trustForwardHeader false
// it tells of the request by X-Forwarded-For, -Method, -Proto, -Host and -Uri, and of the
// client's headers all that are not of a connection; an answer of 2xx lets the request
// pass, and any other goes to the client. It asks the edge by an entry point of its own, by which
// the request passes where none answers in time, if the file says so.
func traefik(t *testing.T, file string) http.Handler {
	one := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(`(?m)^ *`+pattern+` *(#.*)?$`).FindAllStringSubmatch(file, -1)
		if len(m) != 1 {
			t.Fatalf("deploy/traefik/spillgate.yaml has %d lines for %s, want one", len(m), pattern)
		}
		return m[0][1]
	}
	ask, application := one(`address: (http://\S+)`), one(`- url: (\S+) # CHANGE: what is limited`)
	question := strings.Replace(ask, regexp.MustCompile(`http://[^/]+`).FindString(ask), one(`- url: (\S+) # CHANGE: the edge`), 1)
	for _, open := range []string{ // from the entry point on
		`(entryPoints: \[ask\])`, `(middlewares: \[spillgate-open\])`, `(service: spillgate-or-all)`, `(failover: \{service: spillgate-edge, fallback: ping@internal\})`,
		`(status: \["502", "504"\])`, `(statusRewrites: \{"502": 200, "504": 200\})`, `(serversTransport: spillgate)`,
	} {
		one(open)
	}
	patience, err := time.ParseDuration(one(`forwardingTimeouts: \{dialTimeout: 300ms, responseHeaderTimeout: (\S+)\}`))
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Split(one(`authResponseHeaders: \[(.*)\]`), ", ")
	one(`trustForwardHeader: (false)`)
	one(`middlewares: \[(spillgate-clean, spillgate-ask)\]`)
	one(`middlewares: \[(spillgate)\]`)
	to, err := url.Parse(application)
	if err != nil {
		t.Fatal(err)
	}
	// An empty value takes a header away.
	emptied := func(headers string) [][]string {
		lines := regexp.MustCompile(`(?m)^ *` + headers + `:\n((?: *[\w-]+: ""\n)+)`).FindStringSubmatch(file)
		if lines == nil {
			t.Fatalf("deploy/traefik/spillgate.yaml empties no %s", headers)
		}
		return regexp.MustCompile(`(?m)^ *([\w-]+): ""$`).FindAllStringSubmatch(lines[1], -1)
	}
	ofRequests, ofAnswers := emptied("customRequestHeaders"), emptied("customResponseHeaders")
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(client.CloseIdleConnections)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, header := range ofRequests {
			r.Header.Del(header[1])
		}
		question, err := http.NewRequestWithContext(r.Context(), http.MethodGet, question, nil)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		question.Header = r.Header.Clone()
		for _, name := range append(strings.Split(r.Header.Get("Connection"), ","), "Connection", "Keep-Alive", "Te", "Trailers", "Transfer-Encoding", "Upgrade") {
			question.Header.Del(strings.TrimSpace(name))
		}
		from, _, _ := net.SplitHostPort(r.RemoteAddr)
		for name, value := range map[string]string{"For": from + ", 127.0.0.1", "Method": r.Method, "Proto": "http", "Host": r.Host, "Uri": r.URL.RequestURI()} {
			question.Header.Set("X-Forwarded-"+name, value)
		}
		answer, err := client.Do(question)
		if err != nil { // the entry point's 502, or 504
			answer = &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
		}
		defer answer.Body.Close()
		if answer.StatusCode < 200 || answer.StatusCode > 299 {
			for name, values := range answer.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.StatusCode)
			_, _ = io.Copy(w, answer.Body)
			return
		}
		clean := func(res *http.Response) error {
			for _, header := range ofAnswers {
				res.Header.Del(header[1])
			}
			return nil
		}
		pass := httputil.ReverseProxy{ModifyResponse: clean, Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = p.In.Host
			p.SetXForwarded()
			for _, name := range told { // and what the client wrote there is gone
				p.Out.Header.Del(name)
				if v := answer.Header.Get(name); v != "" {
					p.Out.Header.Set(name, v)
				}
			}
		}}
		pass.ServeHTTP(w, r)
	})
}
