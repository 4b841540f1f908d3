// Package accesslog reads web servers' access logs to replay them: the combined
// log format of Apache and nginx, gzip or plain.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// What is read of a log at the most, so that any file can be given.
const (
	maxLine     = 16 << 10
	maxRequests = 1 << 18
	maxLogBytes = 128 << 20
)

// ErrNoRequests is returned, wrapped, for a log without a single line that
// could be read.
var ErrNoRequests = errors.New("no request in combined log format")

// Request is a client's request, from a log or made up.
type Request struct {
	Client, Method, Path, Referer, Agent string

	At time.Time // in UTC, as the log says; zero where it is made up
}

// Log is the requests of a log, replayed again and again.
type Log struct {
	Requests []Request // one or more
	Skipped  int       // lines that were not understood
	Cut      bool      // there was more than is read
	at       int
}

// Next is the next request; the first again after the last.
func (l *Log) Next() Request {
	r := l.Requests[l.at]
	l.at = (l.at + 1) % len(l.Requests)
	return r
}

// Open reads a log, gzip or plain. An error wraps that of the file, or is
// ErrNoRequests, and names the file.
func Open(path string) (*Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	defer f.Close()
	l, err := read(f)
	if err != nil {
		return nil, fmt.Errorf("log %s: %w", path, err)
	}
	return l, nil
}

// read reads the lines of a log, and skips and counts those that it does
// not understand.
func read(file io.Reader) (*Log, error) {
	in := bufio.NewReaderSize(file, maxLine)
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		zip, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		in = bufio.NewReaderSize(zip, maxLine)
	}
	l := &Log{}
	var first error
	skip := func(err error) {
		l.Skipped++
		if first == nil {
			first = fmt.Errorf("line %d: %w", len(l.Requests)+l.Skipped, err)
		}
	}
	known := interner{}
	for total := 0; ; {
		line, err := in.ReadSlice('\n')
		total += len(line)
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) && total < maxLogBytes {
			var rest []byte
			rest, err = in.ReadSlice('\n')
			total += len(rest)
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("after %d lines: %w", len(l.Requests)+l.Skipped, err) // of a broken gzip file, say
		}
		switch text := strings.TrimRight(string(line), "\r\n"); {
		case long:
			skip(fmt.Errorf("longer than %d bytes", maxLine))
		case text == "":
		default:
			r, bad := parseLine(text)
			if bad != nil {
				skip(bad)
				break
			}
			l.Requests = append(l.Requests, known.request(r))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if len(l.Requests) >= maxRequests || total >= maxLogBytes {
			l.Cut = true
			break
		}
	}
	if len(l.Requests) > 0 {
		return l, nil
	}
	if first == nil {
		return nil, fmt.Errorf("%w: it is empty", ErrNoRequests)
	}
	return nil, fmt.Errorf("%w: %d lines, of which the first is wrong at %w", ErrNoRequests, l.Skipped, first)
}

// parseLine reads one line of the combined log format:
//
//	client ident user [time] "METHOD target HTTP/version" status bytes "referer" "agent"
func parseLine(line string) (r Request, err error) {
	p := lineReader{rest: line}
	r.Client = p.word("client")
	p.word("ident")
	p.word("user")
	r.At = p.time()
	call := p.quoted("request")
	if n := p.digits("status"); p.err == nil && n != 3 {
		p.err = errors.New("status: it does not have three digits")
	}
	p.digits("bytes")
	r.Referer = p.quoted("referer")
	r.Agent = p.quoted("user agent")
	if p.err == nil && p.rest != "" {
		p.err = errors.New("something follows the user agent")
	}
	if p.err != nil {
		return Request{}, p.err
	}
	method, rest, _ := strings.Cut(call, " ")
	target, protocol, ok := strings.Cut(rest, " ")
	if !ok || method == "" || target == "" || !strings.HasPrefix(protocol, "HTTP/") || strings.Contains(protocol, " ") {
		return Request{}, fmt.Errorf("request %.80q is not METHOD target HTTP/version", call)
	}
	r.Method, r.Path = method, pathOf(target)
	if r.Referer == "-" {
		r.Referer = ""
	}
	return r, nil
}

// pathOf is the path of a request target, without the query.
func pathOf(target string) string {
	if _, rest, ok := strings.Cut(target, "://"); ok && target[0] != '/' {
		_, rest, _ = strings.Cut(rest, "/")
		target = "/" + rest
	}
	target, _, _ = strings.Cut(target, "?")
	return target
}

// lineReader takes fields off a line until one is wrong.
type lineReader struct {
	rest string
	err  error
}

func (p *lineReader) fail(field, want string) {
	if p.err == nil {
		p.err = fmt.Errorf("%s: want %s at %.40q", field, want, p.rest)
	}
}

func (p *lineReader) word(field string) string {
	w, rest, ok := strings.Cut(p.rest, " ")
	if !ok || w == "" || strings.ContainsAny(w, "\"[\x00") {
		p.fail(field, "a word and a space")
		return ""
	}
	if p.err == nil {
		p.rest = rest
	}
	return w
}

func (p *lineReader) time() time.Time {
	in, ok := strings.CutPrefix(p.rest, "[")
	at, rest, closed := strings.Cut(in, "] ")
	t, err := time.Parse("02/Jan/2006:15:04:05 -0700", at)
	if !ok || !closed || err != nil {
		p.fail("time", "[17/May/2015:10:05:03 +0000]")
		return time.Time{}
	}
	p.rest = rest
	return t.UTC()
}

// digits takes a number and returns how many digits it has; a dash is none.
func (p *lineReader) digits(field string) int {
	w := p.word(field)
	if w == "-" {
		return 0
	}
	if p.err == nil && strings.Trim(w, "0123456789") != "" {
		p.err = fmt.Errorf("%s: %.40q is not a number", field, w)
	}
	return len(w)
}

// quoted takes a field in quotes, within which a backslash escapes a quote.
func (p *lineReader) quoted(field string) string {
	if p.err != nil {
		return ""
	}
	if !strings.HasPrefix(p.rest, `"`) {
		p.fail(field, "a quote")
		return ""
	}
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '"':
			text, rest := p.rest[1:i], p.rest[i+1:]
			if rest != "" && rest[0] != ' ' {
				p.fail(field, "a space after the quote")
				return ""
			}
			p.rest = strings.TrimPrefix(rest, " ")
			return strings.ReplaceAll(text, `\"`, `"`)
		}
	}
	p.fail(field, "an end of the quotes")
	return ""
}

// interner keeps one copy of strings that come again and again: a log is mostly
// the same clients, paths and browsers, and its lines are not kept.
type interner map[string]string

func (in interner) request(r Request) Request {
	for _, s := range []*string{&r.Client, &r.Method, &r.Path, &r.Referer, &r.Agent} {
		one, ok := in[*s]
		if !ok {
			one = strings.Clone(*s)
			in[one] = one
		}
		*s = one
	}
	return r
}
