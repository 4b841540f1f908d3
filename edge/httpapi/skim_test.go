package httpapi

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A proxy that tells of a body which it does not send is answered at once all the same, and
// one that sends it keeps its connection.
func TestAuthDoesNotWaitForBodies(t *testing.T) {
	b := newBench(t, perClient(1))
	url := b.listen(t)
	dial := func() (net.Conn, *bufio.Reader) {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil { // before a server would give up
			t.Fatal(err)
		}
		return c, bufio.NewReader(c)
	}
	for name, tt := range map[string]struct {
		fields, body string
		closes       bool
	}{
		"none":                    {"", "", false},
		"all of it":               {"Content-Length: 3\r\n", "abc", false},
		"chunks":                  {"Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", false},
		"nothing of it":           {"Content-Length: 100000\r\n", "", true},
		"some of it":              {"Content-Length: 100000\r\n", "abc", true},
		"chunks without an end":   {"Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n", true},
		"what is to be asked for": {"Content-Length: 3\r\nExpect: 100-continue\r\n", "", true},
	} {
		c, r := dial()
		for i, want := range []int{200, 429} {
			fmt.Fprintf(c, "POST /v1/auth HTTP/1.1\r\nHost: h\r\nX-Forwarded-Uri: /api/x\r\nX-Forwarded-For: 192.0.2.%d\r\n%s\r\n%s", len(name), tt.fields, tt.body)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Errorf("%s, request %d: %v", name, i, err)
				break
			}
			resp.Body.Close()
			if resp.StatusCode != want || resp.Close != tt.closes {
				t.Errorf("%s, request %d: %d, closes: %v; want %d, %v", name, i, resp.StatusCode, resp.Close, want, tt.closes)
			}
			if tt.closes {
				c, r = dial()
			}
		}
	}
}
