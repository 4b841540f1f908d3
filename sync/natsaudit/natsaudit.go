// Package natsaudit keeps in JetStream what operators did, and tried to do: entries that are
// appended, and that nobody who may append can change or take away.
//
// The stream is one of a region's domain. It is called and addressed as a key-value bucket is, as
// JetStream hands on what is published to a bucket from other domains, and to no other stream: each
// entry is a key of its own, of which there is one message and never a second. Deleting and purging
// are denied; entries go when they are older than Keep.
package natsaudit

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Keep is how long entries are kept.
const Keep = 400 * 24 * time.Hour

// maxEntry bounds an entry in bytes, and callTime what is asked of JetStream.
const (
	maxEntry = 16 << 10
	callTime = 2 * time.Second
)

var (
	// ErrNone: there is no such log.
	ErrNone = errors.New("there is no audit log")
	// ErrUnavailable: JetStream did not answer, or refused.
	ErrUnavailable = errors.New("the audit log cannot be reached")
)

// Entry is one thing that somebody did or tried.
type Entry struct {
	Number    uint64    `json:"number"`  // 1 the first; set by Read
	At        time.Time `json:"at"`      // when the log took it; set by Read
	Request   string    `json:"request"` // the same for all entries about one
	Who       string    `json:"who,omitempty"`
	Role      string    `json:"role,omitempty"`
	From      string    `json:"from,omitempty"` // address
	Action    string    `json:"action"`         // such as "put"
	Namespace string    `json:"namespace,omitempty"`
	Rule      string    `json:"rule,omitempty"`
	Version   uint64    `json:"version,omitempty"` // of the namespace: that was to be changed, or was made
	Message   string    `json:"message,omitempty"`
	Result    string    `json:"result"` // "begun", "done", or why not
}

// Log is the audit log of a region. It is safe for concurrent use.
type Log struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	put    string // begins the subjects of entries
}

// nameOf is what the log beside a bucket of rules is called.
func nameOf(bucket string) string { return bucket + "_audit" }

// Make makes the log beside a bucket of rules, or has it be as this version makes it; an operator may.
func Make(ctx context.Context, js jetstream.JetStream, bucket string, replicas int) error {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "KV_" + nameOf(bucket), Subjects: []string{"$KV." + nameOf(bucket) + ".>"}, Description: "what operators did to rules, and tried",
		MaxAge: Keep, MaxMsgSize: maxEntry, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true,
		DenyDelete: true, DenyPurge: true, AllowDirect: true, Replicas: replicas,
	})
	if err != nil {
		return fmt.Errorf("audit: make %s: %w: %w", nameOf(bucket), ErrUnavailable, err)
	}
	return nil
}

// Open opens the log beside a bucket of rules, of a JetStream domain ("": the server's own). Its
// error wraps ErrNone where there is none, or ErrUnavailable.
func Open(ctx context.Context, js jetstream.JetStream, domain, bucket string) (*Log, error) {
	stream, err := js.Stream(ctx, "KV_"+nameOf(bucket))
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("audit: %s: %w", nameOf(bucket), ErrNone)
	case err != nil:
		return nil, fmt.Errorf("audit: %s: %w: %w", nameOf(bucket), ErrUnavailable, err)
	}
	put := "$KV." + nameOf(bucket) + "."
	if domain != "" {
		put = "$JS." + domain + ".API." + put
	}
	return &Log{js: js, stream: stream, put: put}, nil
}

// Append appends an entry; it is stored when it returns nil. Its error wraps ErrUnavailable: then it
// may be stored all the same.
func (l *Log) Append(ctx context.Context, e Entry) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	text, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if _, err := l.js.PublishMsg(ctx, &nats.Msg{Subject: l.put + rand.Text(), Data: text}); err != nil {
		return fmt.Errorf("audit: %w: %w", ErrUnavailable, err)
	}
	return nil
}

// readTime bounds how long a Read looks for entries.
const readTime = 5 * time.Second

// Read is at most n entries that are older than the one of a number (0: of all), the newest first,
// that want takes. Where it has not seen all of them, be it for want of time, more is the number to go
// on with; else it is 0. Its error wraps ErrUnavailable.
func (l *Log) Read(ctx context.Context, before uint64, n int, want func(*Entry) bool) (found []Entry, more uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*callTime)
	defer cancel()
	info, err := l.stream.Info(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("audit: %w: %w", ErrUnavailable, err)
	}
	number := info.State.LastSeq
	if before > 0 {
		number = min(number, before-1)
	}
	found = []Entry{}
	for began := time.Now(); number >= max(1, info.State.FirstSeq); number-- {
		if len(found) == n || time.Since(began) > readTime {
			return found, number + 1, nil
		}
		m, err := l.stream.GetMsg(ctx, number)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound): // it has grown old meanwhile
			continue
		case err != nil:
			return nil, 0, fmt.Errorf("audit: %w: %w", ErrUnavailable, err)
		}
		var e Entry
		if json.Unmarshal(m.Data, &e) != nil {
			e = Entry{Result: "this entry cannot be read"}
		}
		e.Number, e.At = m.Sequence, m.Time
		if want(&e) {
			found = append(found, e)
		}
	}
	return found, 0, nil
}
