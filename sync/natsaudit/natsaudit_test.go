package natsaudit

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/sync/natsbus/embedded/embeddedtest"
)

func open(t *testing.T) (*Log, jetstream.JetStream, *embedded.Server) {
	t.Helper()
	bus, s := embeddedtest.JetStream(t, t.TempDir())
	js, err := bus.JetStream("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), js, "", "rules"); !errors.Is(err, ErrNone) {
		t.Errorf("Open of what is not there: %v, want ErrNone", err)
	}
	for range 2 { // the second changes nothing
		if err := Make(t.Context(), js, "rules", 1); err != nil {
			t.Fatal(err)
		}
	}
	l, err := Open(t.Context(), js, "", "rules")
	if err != nil {
		t.Fatal(err)
	}
	return l, js, s
}

func all(*Entry) bool { return true }

func TestLog(t *testing.T) {
	t.Parallel()
	l, _, _ := open(t)
	if got, more, err := l.Read(t.Context(), 0, 10, all); err != nil || len(got) != 0 || more != 0 {
		t.Errorf("Read of an empty log = %v, %v", got, err)
	}
	for _, action := range []string{"put", "delete", "put", "rollback"} {
		if err := l.Append(t.Context(), Entry{Who: "ada", Action: action, Namespace: "shop", Result: "done"}); err != nil {
			t.Fatal(err)
		}
	}
	got, more, err := l.Read(t.Context(), 0, 2, all)
	if err != nil || more != 3 || len(got) != 2 || got[0].Action != "rollback" || got[0].Number != 4 || got[0].Who != "ada" || got[0].At.IsZero() {
		t.Fatalf("Read = %+v, %v, want the newest two", got, err)
	}
	got, more, err = l.Read(t.Context(), more, 10, func(e *Entry) bool { return e.Action == "put" })
	if err != nil || more != 0 || len(got) != 1 || got[0].Number != 1 {
		t.Errorf("Read of those before, that are a put = %+v, %v, want the first", got, err)
	}
}

// Who appends changes nothing, nor takes anything away; nor does who may ask the API for that.
func TestNothingGoes(t *testing.T) {
	t.Parallel()
	l, js, _ := open(t)
	if err := l.Append(t.Context(), Entry{Action: "put"}); err != nil {
		t.Fatal(err)
	}
	m, err := l.stream.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Data: []byte("{}")}); err == nil {
		t.Error("an entry was written over")
	}
	roll := &nats.Msg{Subject: m.Subject, Data: []byte("{}"), Header: nats.Header{"Nats-Rollup": {"all"}}}
	if _, err := js.PublishMsg(t.Context(), roll); err == nil {
		t.Error("entries were rolled up")
	}
	if err := l.stream.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("an entry was deleted")
	}
	if err := l.stream.Purge(t.Context()); err == nil {
		t.Error("the log was purged")
	}
	if err := l.Append(t.Context(), Entry{Action: strings.Repeat("x", maxEntry)}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Append of what is too large: %v", err)
	}
	if got, _, err := l.Read(t.Context(), 0, 10, all); err != nil || len(got) != 1 || got[0].Action != "put" {
		t.Errorf("Read = %+v, %v, want the one entry", got, err)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	l, _, s := open(t)
	s.Shutdown()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Append(ctx, Entry{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Append without a server: %v, want ErrUnavailable", err)
	}
	if _, _, err := l.Read(ctx, 0, 1, all); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Read without a server: %v, want ErrUnavailable", err)
	}
}
