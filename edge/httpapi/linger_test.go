package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An answer that comes before the body of its request was read, or all of it, is there for who
// writes on, whether the request ends its connection or not.
func TestAnswersComeBeforeTheConnectionIsReset(t *testing.T) {
	const length = 4 << 20
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/part":
			_, _ = io.CopyN(io.Discard, r.Body, length/4)
		case "/long": // more than net/http keeps until the handler is done
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(make([]byte, 64<<10))
			return
		}
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	ctx, stop := context.WithCancel(t.Context())
	ln, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- NewServer(handler, ServerConfig{}).Serve(ctx, ln) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for _, head := range []string{
		"POST / HTTP/1.0\r\nHost: h\r\n", "POST /part HTTP/1.0\r\nHost: h\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n", "POST / HTTP/1.1\r\nHost: h\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n", // and does not wait
	} {
		for range 10 {
			if err := uploads(ln.Addr().String(), head, length); err != nil {
				t.Fatalf("%q: %v", head, err)
			}
		}
	}
	patient := http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}, Timeout: 5 * time.Second}
	defer patient.CloseIdleConnections()
	req, err := http.NewRequest(http.MethodPost, "http://"+ln.Addr().String()+"/long", strings.NewReader("it is not asked for"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	res, err := patient.Do(req)
	if err != nil {
		t.Fatalf("who waits to be told to go on: %v", err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || len(text) != 64<<10 {
		t.Errorf("who waits to be told to go on gets %d bytes, %v", len(text), err)
	}
}

// uploads sends a request with a body until that is sent, or the answer is there. It is an error
// if the connection breaks before.
func uploads(address, head string, length int) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && res.StatusCode != http.StatusTooManyRequests {
			err = fmt.Errorf("the status is %d", res.StatusCode)
		}
		answered <- err
		_ = conn.SetWriteDeadline(time.Now()) // who has his answer writes no more
	}()
	if _, err := fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head, length); err != nil {
		return err
	}
	for part := make([]byte, 64<<10); length > 0; length -= len(part) {
		select {
		case err := <-answered:
			return err
		default:
		}
		if _, err := conn.Write(part); err != nil {
			select {
			case err := <-answered:
				return err
			default:
				return fmt.Errorf("before the answer was read: %w", err)
			}
		}
	}
	return <-answered
}
