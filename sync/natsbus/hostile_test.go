package natsbus

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// listener is what a connection hears of some subjects.
type listener struct {
	t     *testing.T
	heard chan *nats.Msg
	all   *nats.Conn // may say anything, to mark how far it has heard
}

func (s *system) listen(t *testing.T, user, at string, all *nats.Conn, subjects ...string) *listener {
	t.Helper()
	l := &listener{t: t, heard: make(chan *nats.Msg, 1000), all: all}
	nc := dial(t, s, user, at)
	for _, subject := range subjects {
		if _, err := nc.ChanSubscribe(subject, l.heard); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range subjects { // the whole way there has heard of it
		proc.Until(t, heals, func() error { return l.mark(strings.ReplaceAll(subject, "*", "9"), func(*nats.Msg) {}) })
	}
	return l
}

// mark has what was said before on a subject be heard first.
func (l *listener) mark(subject string, other func(*nats.Msg)) error {
	mark := fmt.Sprint("mark ", time.Now().UnixNano())
	if err := l.all.Publish(subject, []byte(mark)); err != nil {
		return err
	}
	for end := time.After(heals / 10); ; {
		select {
		case m := <-l.heard:
			switch data := string(m.Data); {
			case data == mark:
				return nil
			case !strings.HasPrefix(data, "mark "):
				other(m)
			}
		case <-end:
			return fmt.Errorf("%s is not heard", subject)
		}
	}
}

// nothing says that nothing but marks was heard on the subjects until now.
func (l *listener) nothing(what string, subjects ...string) {
	l.t.Helper()
	for _, subject := range subjects {
		proc.Until(l.t, heals, func() error {
			return l.mark(subject, func(m *nats.Msg) { l.t.Errorf("%s: heard on %s: %.100q", what, m.Subject, m.Data) })
		})
	}
}

// A PoP that asks an aggregator says where the answer goes: nobody but itself hears it.
func TestNobodySpeaksByAnAggregator(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	all := operator(t, s.users, s.urls["eu"])
	agg := s.aggregator(t, "eu")
	claim := deltasync.ClaimSubject("eu", 3, "eu", "ams", "e1")
	if _, err := agg.Serve(deltasync.ClaimSubjects("eu", 3), deltasync.Queue("eu"), func(_ context.Context, subject string, _ []byte) []byte {
		return []byte("answer to " + subject)
	}); err != nil {
		t.Fatal(err)
	}
	fra := s.listen(t, "POP_FRA", "fra", all, "sg.v1.hot.eu.*", "sg.v1.grant.eu.*")
	iad := s.listen(t, "POP_IAD", "iad", all, "sg.v1.hot.us.*", "sg.v1.grant.us.*")
	honest := s.edge(t, "eu", "ams", "e1")
	answered(t, honest, claim, "answer to "+claim)
	hostile := dial(t, s, "POP_AMS", "ams")
	for _, to := range []string{"sg.v1.grant.eu.3", "sg.v1.hot.eu.3", "sg.v1.grant.us.3", "sg.v1.hot.us.3", "sg.v1.live.eu", "sg.v1.up.us.3.r.eu"} {
		if err := hostile.PublishRequest(claim, to, nil); err != nil {
			t.Fatal(err)
		}
	}
	proc.Until(t, heals, func() error {
		if n := agg.Status().Misdirected; n != 6 {
			return fmt.Errorf("%d requests were seen whose answers go to no inbox, want 6", n)
		}
		return nil
	})
	fra.nothing("ams has the aggregator of eu speak", "sg.v1.grant.eu.3", "sg.v1.hot.eu.3")
	iad.nothing("ams has the aggregator of eu speak", "sg.v1.grant.us.3", "sg.v1.hot.us.3")
}

// Whatever the streams of a region's deferred requests are made to be, and whatever a PoP asks of
// them: none hears what others count, or tells anybody anything but answers. A PoP may not
// make them so (edge/deferred tries that): here the operator does.
func TestNobodySpeaksByAStream(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	proc.NATSJetStream(t, s.users, "eu", s.hub, t.TempDir())
	all := operator(t, s.users, s.urls["eu"])
	edges := s.listen(t, "POP_IAD", "iad", all, "sg.v1.hot.us.*", "sg.v1.grant.us.*")
	agg := s.listen(t, "AGG_US", "us", all, "sg.v1.live.us", "sg.v1.up.us.>")
	hostile := dial(t, s, "POP_AMS", "ams")
	inbox := "_INBOX_eu.ams.h.n."
	answers := make(chan *nats.Msg, 1000)
	if _, err := hostile.ChanSubscribe(inbox+"*", answers); err != nil {
		t.Fatal(err)
	}
	asked := 0
	ask := func(nc *nats.Conn, subject string, request any) (answer struct {
		Error *struct{ Description string }
		State struct{ Messages int }
	}) {
		t.Helper()
		b, raw := request.([]byte)
		if !raw {
			b, _ = json.Marshal(request)
		}
		asked++
		proc.Until(t, heals, func() error { // the stream's server may not be heard of yet
			to := inbox + fmt.Sprint(asked)
			if err := nc.PublishRequest(subject, to, b); err != nil {
				return err
			}
			for end := time.After(time.Second); ; {
				select {
				case m := <-answers:
					if m.Subject == to && m.Header.Get("Status") != "503" {
						return json.Unmarshal(m.Data, &answer)
					}
				case <-end:
					return fmt.Errorf("%s: no answer", subject)
				}
			}
		})
		return answer
	}
	stream := func(more map[string]any) map[string]any {
		c := map[string]any{
			"name": "SG_DEAD_eu", "subjects": []string{"sg.v1.dead.eu.*"}, "retention": "limits", "storage": "file",
			"max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1, "allow_direct": true, "discard": "old",
		}
		for k, v := range more {
			c[k] = v
		}
		return c
	}
	if a := ask(all, "$JS.eu.API.STREAM.CREATE.SG_DEAD_eu", stream(nil)); a.Error != nil {
		t.Fatal(a.Error.Description)
	}
	ask(hostile, "sg.v1.dead.eu.x", []byte(`"forged"`))
	if a := ask(hostile, "$JS.eu.API.STREAM.INFO.SG_DEAD_eu", nil); a.State.Messages == 0 {
		t.Fatal("nothing is stored: this test sees nothing")
	}
	victims := []string{"sg.v1.hot.us.3", "sg.v1.grant.us.3", "sg.v1.live.us", "sg.v1.up.us.3.r.eu"}
	for _, to := range victims {
		if err := hostile.PublishRequest("$JS.eu.API.DIRECT.GET.SG_DEAD_eu", to, []byte(`{"last_by_subj":"sg.v1.dead.eu.x"}`)); err != nil {
			t.Fatal(err)
		}
		ask(all, "$JS.eu.API.STREAM.UPDATE.SG_DEAD_eu", stream(map[string]any{"republish": map[string]any{"src": "sg.v1.dead.eu.y", "dest": to}}))
		ask(hostile, "sg.v1.dead.eu.y", []byte(`"republished"`))
	}
	edges.nothing("ams has its stream speak", victims[:2]...)
	agg.nothing("ams has its stream speak", victims[2:]...)

	ask(all, "$JS.eu.API.STREAM.UPDATE.SG_DEAD_eu", stream(map[string]any{"subjects": []string{"sg.v1.dead.eu.*", "sg.v1.up.eu.>"}}))
	had := ask(hostile, "$JS.eu.API.STREAM.INFO.SG_DEAD_eu", nil).State.Messages
	counts := s.listen(t, "AGG_EU", "eu", all, "sg.v1.up.eu.>")
	fra := dial(t, s, "POP_FRA", "fra")
	heard := 0
	proc.Until(t, heals, func() error {
		if err := fra.Publish("sg.v1.up.eu.3.e.fra.e1", []byte("counts")); err != nil {
			return err
		}
		if err := counts.mark("sg.v1.up.eu.3.e.fra.e1", func(*nats.Msg) { heard++ }); err != nil || heard == 0 {
			return fmt.Errorf("what fra counts is not heard: %v", err)
		}
		return nil
	})
	if has := ask(hostile, "$JS.eu.API.STREAM.INFO.SG_DEAD_eu", nil).State.Messages; has != had {
		t.Errorf("a stream has %d messages of what fra counts", has-had)
	}
}
