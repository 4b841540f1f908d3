package natsentries

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"
)

// Entry is what holds for one thing, as somebody made it.
type Entry struct {
	Kind      string // of thing: lower-case letters
	Namespace string // empty: it is of none
	Name      string

	At      time.Time       // when it was made, to the microsecond; later than the one before
	Until   time.Time       // when it ends, to the microsecond; zero: never
	Author  string          // a Follower's entries have none
	Message string          // nor this
	Body    json.RawMessage // a JSON object; nil where Deleted
	Deleted bool            // it was taken away

	Revision uint64 // of the bucket, where it was read from one, or written
}

// Gone says that nothing holds any more: it was taken away, or has ended.
func (e *Entry) Gone(now time.Time) bool {
	return e.Deleted || !e.Until.IsZero() && !now.Before(e.Until)
}

const (
	// MaxName, MaxAuthor, MaxMessage and MaxBody are what an entry may have at the most, in bytes.
	MaxName    = 256
	MaxAuthor  = 200
	MaxMessage = 2000
	MaxBody    = 4 << 10
	// MaxEntries is how many a bucket, and a Follower, have at the most.
	MaxEntries = 1 << 20
	// Keep is how long what has gone is known to have gone.
	Keep = 30 * 24 * time.Hour

	maxValue = 32 << 10 // six bytes for each that JSON escapes
)

// ErrBad: an entry that cannot be written, or none of ours.
var ErrBad = errors.New("bad entry")

var (
	kindForm      = regexp.MustCompile(`^[a-z]{1,20}$`)
	namespaceForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`) // what limit.Compile takes
)

// stored is an Entry as it stands in a bucket, and in a Follower's file.
type stored struct {
	At      int64           `json:"at_us"`
	Until   int64           `json:"until_us,omitempty"`
	Author  string          `json:"author,omitempty"`
	Message string          `json:"message,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
	Deleted bool            `json:"deleted,omitempty"`
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBad}, args...)...)
}

// check returns what is wrong with an entry; its error wraps ErrBad.
func (e *Entry) check() error {
	switch {
	case !kindForm.MatchString(e.Kind):
		return bad("kind: %.40q; want lower-case letters", e.Kind)
	case e.Namespace != "" && !namespaceForm.MatchString(e.Namespace):
		return bad(`namespace: %.80q is no name; want letters, digits, "_", "." and "-", at most 63`, e.Namespace)
	case e.Name == "":
		return bad("name: missing")
	case len(e.Name) > MaxName:
		return bad("name: %d bytes, want at most %d", len(e.Name), MaxName)
	case e.At.UnixMicro() <= 0:
		return bad("at: missing")
	case !e.Until.IsZero() && e.Until.UnixMicro() <= 0:
		return bad("until: %v", e.Until)
	case e.Deleted && (len(e.Body) > 0 || !e.Until.IsZero()):
		return bad("deleted: it has a body, or an end")
	case !e.Deleted && len(e.Body) == 0:
		return bad("body: missing")
	case len(e.Body) > MaxBody:
		return bad("body: %d bytes, want at most %d", len(e.Body), MaxBody)
	case !e.Deleted && (e.Body[0] != '{' || !json.Valid(e.Body)):
		return bad("body: no JSON object")
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{{"name", e.Name, MaxName}, {"author", e.Author, MaxAuthor}, {"message", e.Message, MaxMessage}, {"body", string(e.Body), MaxBody}} {
		switch {
		case len(f.value) > f.most:
			return bad("%s: %d bytes, want at most %d", f.name, len(f.value), f.most)
		case !utf8.ValidString(f.value):
			return bad("%s: not UTF-8", f.name)
		}
	}
	return nil
}

// normal has the times and the body as they are read again.
func (e *Entry) normal() error {
	e.At = e.At.UTC().Truncate(time.Microsecond)
	if !e.Until.IsZero() {
		e.Until = e.Until.UTC().Truncate(time.Microsecond)
	}
	if len(e.Body) == 0 {
		e.Body = nil
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, e.Body); err != nil {
		return bad("body: %w", err)
	}
	e.Body = b.Bytes()
	return nil
}

// pack is the value of an entry.
func (e *Entry) pack() ([]byte, error) {
	if err := e.normal(); err != nil {
		return nil, err
	}
	if err := e.check(); err != nil {
		return nil, err
	}
	s := stored{At: e.At.UnixMicro(), Author: e.Author, Message: e.Message, Body: e.Body, Deleted: e.Deleted}
	if !e.Until.IsZero() {
		s.Until = e.Until.UnixMicro()
	}
	var b bytes.Buffer
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(s); err != nil {
		return nil, bad("%w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// unpack reads what pack wrote, of a key. Its error wraps ErrBad.
func unpack(key string, value []byte) (Entry, error) {
	e, err := parseKey(key)
	if err != nil {
		return Entry{}, err
	}
	if len(value) > maxValue {
		return Entry{}, bad("%d bytes", len(value))
	}
	var s stored
	in := json.NewDecoder(bytes.NewReader(value))
	in.DisallowUnknownFields()
	if err := in.Decode(&s); err != nil {
		return Entry{}, bad("%w", err)
	}
	if _, err := in.Token(); err == nil {
		return Entry{}, bad("more than an entry")
	}
	e.At, e.Author, e.Message, e.Body, e.Deleted = time.UnixMicro(s.At), s.Author, s.Message, s.Body, s.Deleted
	if s.Until != 0 {
		e.Until = time.UnixMicro(s.Until)
	}
	if err := e.normal(); err != nil {
		return Entry{}, err
	}
	return e, e.check()
}

// key is what a thing is called in the bucket: a dot would part a namespace into two.
func key(kind, namespace, name string) string {
	if namespace != "" {
		kind += "." + strings.ReplaceAll(namespace, ".", "=2e")
	}
	return kind + "." + base64.RawURLEncoding.EncodeToString([]byte(name))
}

func (e *Entry) key() string { return key(e.Kind, e.Namespace, e.Name) }

// parseKey is an entry with what its key says alone.
func parseKey(k string) (e Entry, err error) {
	parts := strings.Split(k, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return e, bad("key %.80q", k)
	}
	e.Kind = parts[0]
	if len(parts) == 3 {
		e.Namespace = strings.ReplaceAll(parts[1], "=2e", ".")
	}
	name, err := base64.RawURLEncoding.DecodeString(parts[len(parts)-1])
	e.Name = string(name)
	if err != nil || e.key() != k {
		return Entry{}, bad("key %.80q", k)
	}
	return e, nil
}
