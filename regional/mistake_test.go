package regional_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// An edge with another secret than most is told so, and its counts are taken as
// ever: they are of keys of its own.
func TestAnotherSecretIsTold(t *testing.T) {
	r := newRegion(t, "eu", newStore(&start))
	odd, a, b := &edge{name: "odd", secret: 7}, &edge{name: "a", secret: 5}, &edge{name: "b", secret: 5}
	for range 30 {
		for i, e := range []*edge{odd, a, b} {
			down := e.tell(r, 9, charge(start, 5))
			if down.Status != deltasync.StatusOK || !down.Took(0) {
				t.Fatalf("the reply to %s is %v", e.name, down.Status)
			}
			want := deltasync.Mistake(0)
			if i == 0 && r.now.Sub(start) >= 3*time.Second {
				want = deltasync.MistakeSecret
			}
			if r.now.Sub(start) >= 3*time.Second && down.Mistake != want || i > 0 && down.Mistake != 0 {
				t.Fatalf("%v after the start %s is told %q, want %q", r.now.Sub(start), e.name, down.Mistake, want)
			}
		}
		r.now = r.now.Add(200 * time.Millisecond)
	}
	if got := r.Stats(r.now).OtherSecrets; got != 1 {
		t.Errorf("OtherSecrets = %d, want 1", got)
	}
}

// An edge with other lanes is told how many the region has, and the log says it once;
// mended, it is heard at once.
func TestOtherLanesAreTold(t *testing.T) {
	var log bytes.Buffer
	r := newLogged(t, &log)
	up := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e", Node: deltasync.NodeID("eu", "p", "e"), Lanes: 4}
	tell := func() deltasync.Down {
		t.Helper()
		r.now, up.Seq, up.SentAt = r.now.Add(250*time.Millisecond), up.Seq+1, r.now.UnixNano()
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		return decode(t, r.Handle(context.Background(), r.now, deltasync.EdgeSubject("eu", 0, "p", "e"), b))
	}
	for range 1000 {
		if down := tell(); down.Status != deltasync.StatusUnsupported || down.Mistake != deltasync.MistakeLanes || down.Lanes != 1 {
			t.Fatalf("the reply is %v, %q, %d lanes; want what is wrong, and 1 lane", down.Status, down.Mistake, down.Lanes)
		}
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, "set lanes alike") || !strings.Contains(got, "name=e lanes=4 region_lanes=1") {
		t.Errorf("log %q, want once what to mend", got)
	}
	up.Lanes, up.Incarnation = 1, 1
	if down := tell(); down.Status != deltasync.StatusOK || down.Mistake != 0 {
		t.Errorf("mended, it is answered with %v, %q", down.Status, down.Mistake)
	}
}

// Two edges that live by one name are told once, and shown for as long as both live.
func TestEdgesOfOneNameAreTold(t *testing.T) {
	var log bytes.Buffer
	r := newLogged(t, &log)
	tell := func(incarnation uint64) {
		t.Helper()
		up := deltasync.Up{Kind: deltasync.KindEdge, Region: "eu", Pop: "p", Name: "e", Node: deltasync.NodeID("eu", "p", "e"), Lanes: 1,
			Incarnation: incarnation, SentAt: r.now.UnixNano(), Seq: uint64(r.now.Sub(start)/time.Millisecond) + 1}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if down := decode(t, r.Handle(t.Context(), r.now, deltasync.EdgeSubject("eu", 0, "p", "e"), b)); down.Status != deltasync.StatusOK {
			t.Fatal(down.Status)
		}
	}
	for range 30 {
		tell(7)
		if n := r.Stats(r.now).EdgeNamesakes; n != 0 {
			t.Fatalf("%d edges have namesakes, and one lives", n)
		}
		r.now = r.now.Add(200 * time.Millisecond)
	}
	for range 30 {
		tell(8)
		tell(7)
		r.now = r.now.Add(200 * time.Millisecond)
	}
	if n := r.Stats(r.now).EdgeNamesakes; n != 1 || strings.Count(log.String(), "live by one name") != 1 || !strings.Contains(log.String(), "pop=p name=e") {
		t.Errorf("%d edges have namesakes, want 1 told once: %s", n, &log)
	}
	for range 30 {
		tell(8)
		r.now = r.now.Add(200 * time.Millisecond)
	}
	if n := r.Stats(r.now).EdgeNamesakes; n != 0 {
		t.Errorf("%d edges have namesakes when one alone lives", n)
	}
}
