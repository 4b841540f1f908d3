package httpapi

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLoopback sends requests over one kept connection with a client that
// does next to nothing, to the API and to an empty net/http handler that reads
// the same body. cpu-ns/op is the CPU of the whole process, both ends.
func BenchmarkLoopback(b *testing.B) {
	empty := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what is measured is the reading
	})
	api := settledAPI(b, allowed)
	// The peer is loopback, whom the API must believe as it does a proxy.
	api.cfg.TrustedProxies = newBench(b, perClient(1)).api.cfg.TrustedProxies
	auth := "GET /v1/auth HTTP/1.1\r\nHost: edge.example\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /api/things?page=2\r\n" +
		"X-Forwarded-Host: shop.example\r\nX-Forwarded-For: 203.0.113.9\r\n\r\n"
	check := fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: edge.example\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(benchBody), benchBody)
	for _, c := range []struct {
		name    string
		handler http.Handler
		request string
	}{{"auth/empty", empty, auth}, {"auth/api", api, auth}, {"check/empty", empty, check}, {"check/api", api, check}} {
		b.Run(c.name, func(b *testing.B) {
			srv := httptest.NewServer(c.handler)
			defer srv.Close()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			request, buf := []byte(c.request), make([]byte, 4096)
			before := cpuTime(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Write(request); err != nil {
					b.Fatal(err)
				}
				if _, err := conn.Read(buf); err != nil { // every answer fits one segment
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			if got := string(buf[:len("HTTP/1.1 200")]); got != "HTTP/1.1 200" {
				b.Fatalf("answer = %q", got)
			}
		})
	}
}

func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
