package accesslog

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const goodLine = `83.149.9.216 - - [17/May/2015:10:05:03 +0000] "GET /a/b?c=d HTTP/1.1" 200 203023 "http://x.example/" "Mozilla/5.0 (Macintosh)"`

func TestParseLine(t *testing.T) {
	at := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC)
	good := func(path, referer, agent string) Request {
		return Request{Client: "83.149.9.216", Method: "GET", Path: path, Referer: referer, Agent: agent, At: at}
	}
	for _, tc := range []struct {
		name, line string
		want       Request
		err        string // "": none
	}{
		{"as servers write it", goodLine, good("/a/b", "http://x.example/", "Mozilla/5.0 (Macintosh)"), ""},
		{"no bytes, no referer", `83.149.9.216 - frank [17/May/2015:12:05:03 +0200] "GET / HTTP/1.0" 304 - "-" "x"`, good("/", "", "x"), ""},
		{"IPv6", `2001:db8::1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/2.0" 200 1 "-" ""`, Request{Client: "2001:db8::1", Method: "GET", Path: "/", At: at}, ""},
		{"quotes in the agent", strings.Replace(goodLine, "Mozilla/5.0", `say \"hi\"`, 1), good("/a/b", "http://x.example/", `say "hi" (Macintosh)`), ""},
		{"absolute target", strings.Replace(goodLine, "GET /a/b", "GET http://h.example/a/b", 1), good("/a/b", "http://x.example/", "Mozilla/5.0 (Macintosh)"), ""},
		{"empty", "", Request{}, "client"},
		{"prose", "the quick brown fox jumps", Request{}, "time"},
		{"common format, without agent", `1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 1`, Request{}, "bytes"},
		{"agent cut off", strings.TrimSuffix(goodLine, `"`), Request{}, "user agent: want an end of the quotes"},
		{"something behind", goodLine + ` "10.0.0.1"`, Request{}, "follows the user agent"},
		{"time", strings.Replace(goodLine, "May", "Mai", 1), Request{}, "time"},
		{"status", strings.Replace(goodLine, " 200 ", " 20 ", 1), Request{}, "status"},
		{"status is a word", strings.Replace(goodLine, " 200 ", " 2x0 ", 1), Request{}, "status"},
		{"bytes", strings.Replace(goodLine, " 203023 ", " many ", 1), Request{}, "bytes"},
		{"no request", strings.Replace(goodLine, "GET /a/b?c=d HTTP/1.1", "-", 1), Request{}, "METHOD target"},
		{"TLS on a plain port", strings.Replace(goodLine, "GET /a/b?c=d HTTP/1.1", `\x16\x03\x01`, 1), Request{}, "METHOD target"},
		{"no protocol", strings.Replace(goodLine, " HTTP/1.1", "", 1), Request{}, "METHOD target"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parseLine(tc.line)
			if got != tc.want {
				t.Errorf("parseLine = %+v, want %+v", got, tc.want)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want one with %q", err, tc.err)
			}
		})
	}
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReadLog(t *testing.T) {
	other := strings.Replace(goodLine, "83.149.9.216", "1.2.3.4", 1)
	long := strings.Repeat("x", 3*maxLine)
	for _, tc := range []struct {
		name, text string
		requests   int
		skipped    int
	}{
		{"plain", goodLine + "\n" + other + "\n", 2, 0},
		{"no newline at the end, CRLF before", goodLine + "\r\n" + other, 2, 0},
		{"bad lines between", "x\n" + goodLine + "\n\ny\n" + other + "\n", 2, 2},
		{"an endless line", goodLine + "\n" + long + "\n" + other + "\n" + long, 2, 2},
		{"gzip", zipped(t, goodLine+"\n"+other+"\n"), 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := read(strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if len(l.Requests) != tc.requests || l.Skipped != tc.skipped || l.Cut {
				t.Fatalf("%d requests, %d skipped, cut %t; want %d and %d", len(l.Requests), l.Skipped, l.Cut, tc.requests, tc.skipped)
			}
			for i := range 2 * tc.requests { // it goes round
				want := []string{"83.149.9.216", "1.2.3.4"}[i%tc.requests]
				if got := l.Next().Client; got != want {
					t.Errorf("request %d is %s's, want %s's", i, got, want)
				}
			}
		})
	}
}

func TestLogsOfNoUse(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "it is empty"},
		{"only empty lines", "\n\n\n", "it is empty"},
		{"another format", "{\"a\":1}\n{\"b\":2}\n", "2 lines, of which the first is wrong at line 1: client"},
		{"one endless line", strings.Repeat("x", 1<<20), "longer than"},
		{"empty gzip", zipped(t, ""), "it is empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "access.log")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path)
			if !errors.Is(err, ErrNoRequests) || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want ErrNoRequests with %q and the path", err, tc.want)
			}
		})
	}
	half := zipped(t, strings.Repeat(goodLine+"\n", 100))
	if _, err := read(strings.NewReader(half[:len(half)/2])); err == nil {
		t.Error("half a gzip file: no error")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func TestLongLogsAreCut(t *testing.T) {
	l, err := read(strings.NewReader(strings.Repeat(goodLine+"\n", maxRequests+10)))
	if err != nil || len(l.Requests) != maxRequests || !l.Cut {
		t.Errorf("%d requests, cut %t, %v; want %d, cut", len(l.Requests), l.Cut, err, maxRequests)
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add(goodLine)
	f.Add(`1.2.3.4 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.0" 200 - "-" "a \"b\" \`)
	f.Fuzz(func(t *testing.T, line string) {
		r, err := parseLine(line)
		if err != nil {
			if r != (Request{}) {
				t.Errorf("an error and %+v", r)
			}
			return
		}
		if r.Client == "" || r.Method == "" || strings.Contains(r.Path, "?") {
			t.Errorf("parseLine(%q) = %+v", line, r)
		}
	})
}
