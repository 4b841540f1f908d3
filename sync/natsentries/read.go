package natsentries

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// reader asks for many messages at once: a direct get with a batch, which is answered by as many
// messages, and one more that ends them (nats-architecture-and-design, ADR-31; nats-server 2.11).
// It is used by one goroutine.
type reader struct {
	conn   *nats.Conn
	sub    *nats.Subscription
	to     string // subject of requests
	inbox  string
	filter string
	prefix string // of subjects
	asked  uint64
}

// message is one that was read.
type message struct {
	key      string
	revision uint64
	gone     bool // the key was deleted, or purged: it is no value
	value    []byte
}

func (m *message) entry() (Entry, error) {
	if m.gone {
		return Entry{}, fmt.Errorf("entries: key %.400s was deleted, by somebody who writes no entries: %w; what is known stays", m.key, ErrBad)
	}
	e, err := unpack(m.key, m.value)
	if err != nil {
		return Entry{}, fmt.Errorf("entries: key %.400s, revision %d: %w", m.key, m.revision, err)
	}
	e.Revision = m.revision
	return e, nil
}

// reader reads keys that a filter names (">": all).
func (s *Store) reader(filter string) (*reader, error) {
	conn := s.js.Conn()
	in := &reader{conn: conn, to: s.api + "DIRECT.GET.KV_" + s.bucket, inbox: conn.NewInbox() + ".", prefix: "$KV." + s.bucket + "."}
	in.filter = in.prefix + filter
	var err error
	if in.sub, err = conn.SubscribeSync(in.inbox + "*"); err != nil {
		return nil, fmt.Errorf("entries: %w: %w", ErrUnavailable, err)
	}
	if err := in.sub.SetPendingLimits(2*maxPerBatch, 16*maxBytes); err != nil { // for one batch, and what is left of another
		return nil, fmt.Errorf("entries: %w", err)
	}
	return in, nil
}

func (in *reader) close() { _ = in.sub.Unsubscribe() } // it fails where the connection is closed

// next is the messages from a revision on, in order, and whether there are more. What is lost on the way
// ends them, and is read the next time.
func (in *reader) next(ctx context.Context, revision uint64, batch int) (found []message, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	unavailable := func(err any) ([]message, bool, error) {
		return nil, false, fmt.Errorf("entries: read %s: %w: %v", in.to, ErrUnavailable, err)
	}
	request, err := json.Marshal(struct {
		From  uint64 `json:"seq"`
		Of    string `json:"next_by_subj"`
		Batch int    `json:"batch"`
		Bytes int    `json:"max_bytes"`
	}{revision, in.filter, batch, maxBytes})
	if err != nil {
		return unavailable(err)
	}
	in.asked++
	reply := in.inbox + strconv.FormatUint(in.asked, 36)
	if err := in.conn.PublishRequest(in.to, reply, request); err != nil {
		return unavailable(err)
	}
	for last := uint64(0); ; {
		m, err := in.sub.NextMsgWithContext(ctx)
		switch {
		case err != nil:
			return unavailable(err)
		case m.Subject != reply: // to what was asked before, and given up
			continue
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			before, err := number(m, "Nats-Last-Sequence")
			at, err2 := number(m, "Nats-Sequence")
			switch {
			case err != nil || err2 != nil || at < revision || at <= last:
				return unavailable("it answers what is no batch; want nats-server 2.11 or newer")
			case before != last:
				return found, true, nil // some are lost
			}
			last = at
			found = append(found, message{
				key: strings.TrimPrefix(m.Header.Get("Nats-Subject"), in.prefix), revision: at, value: m.Data,
				gone: m.Header.Get(notMessages) != "" || m.Header.Get("Nats-Marker-Reason") != "",
			})
		case "204": // the end
			end, err := number(m, "Nats-Last-Sequence")
			left, err2 := number(m, "Nats-Num-Pending")
			if err != nil || err2 != nil {
				return unavailable("it ends what is no batch")
			}
			return found, left > 0 || end != last, nil
		case "404":
			return found, false, nil
		default:
			return unavailable(strings.TrimSpace(status + " " + m.Header.Get("Description")))
		}
	}
}

func number(m *nats.Msg, header string) (uint64, error) {
	return strconv.ParseUint(m.Header.Get(header), 10, 64)
}
