package regional_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
)

// Who has too many frames refused is not heard for a while, and that is logged
// once; others are served meanwhile.
func TestSenderIsMuted(t *testing.T) {
	var log bytes.Buffer
	a, err := regional.New(regional.Config{Region: "eu", Name: "a1", Lanes: 1, Incarnation: 1,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	r := &region{Aggregator: a, t: t, name: "eu", now: start}
	for range 300 {
		down := decode(t, r.Handle(context.Background(), start, deltasync.EdgeSubject("eu", 0, "p", "e1"), []byte("poison")))
		if down.Status == deltasync.StatusOK {
			t.Fatal("poison is answered with OK")
		}
	}
	if down := (&edge{name: "e1"}).tell(r, 9, charge(start, 5)); down.Status != deltasync.StatusForbidden {
		t.Errorf("a muted sender is answered with %v, want forbidden", down.Status)
	}
	if down := (&edge{name: "e2"}).tell(r, 9, charge(start, 5)); down.Status != deltasync.StatusOK || charges(down.Totals[0].Peers) != 0 {
		t.Errorf("beside a muted sender: %+v, want OK and nothing of others", down)
	}
	if st := r.Stats(start); st.Muted != 1 || st.Refused["muted"] != 200 || st.Refused["malformed"] != 101 {
		t.Errorf("%d muted, refused %v; want 1, and 101 and 200 frames", st.Muted, st.Refused)
	}
	if n := bytes.Count(log.Bytes(), []byte("sender muted")); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, log.String())
	}
}
