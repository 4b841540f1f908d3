package bustest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	deltasync "github.com/spillgate/spillgate/sync"
)

func testOwnership(t *testing.T, a, b deltasync.Bus) {
	scribble := func(p []byte) {
		for i := range p {
			p[i] = '#'
		}
	}
	kept := make(chan []byte, 100)
	reply := []byte("the same reply each time")
	serve(t, a, "up", "agg", func(_ context.Context, _ string, payload []byte) []byte {
		kept <- payload
		return reply
	})
	for name, bus := range map[string]deltasync.Bus{"the same connection": a, "another connection": b} {
		buf := []byte("question")
		ctx, cancel := context.WithTimeout(t.Context(), within)
		got, err := bus.Request(ctx, "up", buf)
		cancel()
		if err != nil {
			t.Fatalf("Request: %v", err)
		}
		scribble(buf)
		scribble(got)
		if p := next(t, "the request", kept); string(p) != "question" {
			t.Errorf("from %s: the server's payload is %q after the requester reused its buffer", name, p)
		}
	}
	if string(reply) != "the same reply each time" {
		t.Errorf("the server's reply is %q after the requester wrote to its own", reply)
	}

	published := make(chan []byte, 100)
	for _, bus := range []deltasync.Bus{a, a, b} {
		if _, err := bus.Subscribe("hot", func(_ string, payload []byte) {
			defer func() { published <- bytes.Clone(payload) }()
			if string(payload) == "news" {
				scribble(payload)
			}
		}); err != nil {
			t.Fatalf("Subscribe: %v", err)
		}
	}
	buf := []byte("news")
	if err := b.Publish("hot", buf); err != nil {
		t.Fatalf("Publish: %v", err)
	}
	scribble(buf)
	for range 3 {
		// A receiver that saw another's scribbles would not have scribbled, but
		// neither would it have seen "news"; and -race sees shared buffers.
		if p := next(t, "the message", published); string(p) != "####" {
			t.Errorf("a subscriber received %q, want a payload of its own", p)
		}
	}
	if string(buf) != "####" {
		t.Errorf("the publisher's buffer is %q", buf)
	}
}

func testSize(t *testing.T, a, b deltasync.Bus) {
	largest := bytes.Repeat([]byte("0123456789abcdef"), deltasync.MaxPayload/16)
	above := append(bytes.Clone(largest), 'x')

	serve(t, a, "echo", "agg", func(_ context.Context, _ string, payload []byte) []byte { return payload })
	serve(t, a, "flood", "agg", func(context.Context, string, []byte) []byte { return above })
	received := make(chan []byte, 1)
	if _, err := a.Subscribe("hot", func(_ string, payload []byte) { received <- payload }); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
	if got, err := try(t, b, within, "echo", largest); err != nil || !bytes.Equal(got, largest) {
		t.Errorf("Request of MaxPayload = %d bytes, %v, want the same %d", len(got), err, len(largest))
	}
	if err := b.Publish("hot", largest); err != nil {
		t.Errorf("Publish of MaxPayload: %v", err)
	} else if got := next(t, "the message", received); !bytes.Equal(got, largest) {
		t.Errorf("received %d bytes, want the same %d", len(got), len(largest))
	}

	if _, err := try(t, b, within, "echo", above); !errors.Is(err, deltasync.ErrTooLarge) {
		t.Errorf("Request of MaxPayload+1: %v, want ErrTooLarge", err)
	}
	if err := b.Publish("hot", above); !errors.Is(err, deltasync.ErrTooLarge) {
		t.Errorf("Publish of MaxPayload+1: %v, want ErrTooLarge", err)
	}
	if got, err := try(t, b, brief, "flood", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Request for a reply of MaxPayload+1 = %d bytes, %v, want DeadlineExceeded", len(got), err)
	}
	if got, err := try(t, b, within, "echo", []byte("still there")); err != nil || string(got) != "still there" {
		t.Errorf("Request after all that = %q, %v", got, err)
	}
}
