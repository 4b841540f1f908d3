package regional_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// padded is a frame with a field of some later version, of so many bytes.
func padded(frame []byte, bytes int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(frame, 99, protowire.BytesType), make([]byte, bytes))
}

// Replies of another region, to exports and to audits, are in the budget of its link:
// while they have used it up nothing regular leaves.
func TestWhatComesBackIsInTheLinksBudget(t *testing.T) {
	const rate, large = 10_000, 30_000
	for _, c := range []struct {
		name         string
		reply, audit int // bytes more
		wait         time.Duration
	}{{"small ones", 1, 1, 0}, {"a large reply", large, 1, 2 * time.Second}, {"a large answer to an audit", 1, large, 2 * time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			a, err := regional.New(regional.Config{Boot: still, Region: "eu", Name: "a1", Peers: []string{"us"}, Lanes: 1, Incarnation: 1, StoreTimeout: time.Second, Budget: rate}, newStore(&start))
			if err != nil {
				t.Fatal(err)
			}
			eu, us, e := &region{Aggregator: a, t: t, name: "eu", now: start}, newRegion(t, "us", newStore(&start), "eu"), &edge{name: "e1"}
			e.tell(eu, 9, charge(start, 1))
			audits := eu.Audits(start)
			for _, o := range eu.Exports(start) {
				if err := eu.Receive(start, o, padded(us.Handle(t.Context(), start, o.Subject, o.Payload), c.reply)); err != nil {
					t.Fatal(err)
				}
			}
			if len(audits) != 1 {
				t.Fatalf("%d audits, want 1", len(audits))
			}
			if err := eu.ReceiveAudit(start, audits[0], padded(us.AnswerAudit(t.Context(), start, audits[0].Payload), c.audit)); err != nil {
				t.Fatal(err)
			}
			e.tell(eu, 9, charge(start, 2))
			for tells := false; !tells && eu.now.Sub(start) < time.Minute; {
				out := eu.Exports(eu.now)
				for _, o := range out {
					var up deltasync.Up
					if err := up.UnmarshalBinary(o.Payload); err != nil {
						t.Fatal(err)
					}
					if tells = len(up.Sections) > 0; !tells { // a beat
						if err := eu.Receive(eu.now, o, us.Handle(t.Context(), eu.now, o.Subject, o.Payload)); err != nil {
							t.Fatal(err)
						}
					}
				}
				if !tells {
					eu.now = eu.now.Add(100 * time.Millisecond)
				}
			}
			if waited := eu.now.Sub(start); waited < c.wait || waited > c.wait+time.Second {
				t.Errorf("the next frame leaves after %v, want %v", waited, c.wait)
			}
		})
	}
}
