package deltasync

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

func edgeUp(name string, seq uint64) *Up {
	return &Up{
		Kind: KindEdge, Region: "eu", Pop: "ams", Name: name, Node: NodeID("eu", "ams", name), Incarnation: 1000,
		Lane: 1, Lanes: 2, Seq: seq, SentAt: int64(seq),
		Sections: []Section{{Shape: minute, Life: 1, Deltas: []Delta{{Key: 1 << 32, Cells: cell(1, 1)}}}},
	}
}

func regionUp(from, name string, seq uint64) *Up {
	u := edgeUp(name, seq)
	u.Kind, u.Region, u.Pop, u.Node, u.Incarnation = KindRegion, from, "", NodeID(from, "", ""), 0
	return u
}

func subjectOf(u *Up) string {
	if u.Kind == KindRegion {
		return RegionSubject("eu", u.Lane, u.Region)
	}
	return EdgeSubject("eu", u.Lane, u.Pop, u.Name)
}

func mustAdmit(t *testing.T, in *Inbox, now int64, u *Up) {
	t.Helper()
	got, status, err := in.Admit(now, subjectOf(u), encode(t, u))
	if err != nil || status != StatusOK || !reflect.DeepEqual(got, u) {
		t.Fatalf("Admit = %+v, %d, %v, want %+v", got, status, err, u)
	}
}

func TestInboxRefuses(t *testing.T) {
	edge := func(change func(u *Up)) *Up {
		u := edgeUp("e1", 1)
		change(u)
		return u
	}
	region := func(change func(u *Up)) *Up {
		u := regionUp("us", "agg-1", 1)
		change(u)
		return u
	}
	good, far := subjectOf(edgeUp("e1", 1)), subjectOf(regionUp("us", "", 1))
	for _, c := range []struct {
		name    string
		subject string
		u       *Up
		raw     []byte // instead of u
		status  Status
		reason  string
		want    string
	}{
		{"no subject", "sg.v1.up.eu.x.e.ams.e1", edgeUp("e1", 1), nil, StatusForbidden, reasonSubject, "lane"},
		{"other region's", EdgeSubject("us", 1, "ams", "e1"), edgeUp("e1", 1), nil, StatusForbidden, reasonForeign, "addressed to us"},
		{"newer", good, nil, []byte{8, Version + 1}, StatusUnsupported, reasonNewer, "upgrade"},
		{"not a frame", good, nil, []byte("GET / HTTP/1.1"), StatusUnsupported, reasonMalformed, "version"},
		{"cut short", good, nil, encode(t, edgeUp("e1", 1))[:40], StatusUnsupported, reasonMalformed, "truncated"},
		{"empty", good, nil, []byte{}, StatusUnsupported, reasonMalformed, "version"},
		{"too large", good, nil, make([]byte, MaxFrame+1), StatusUnsupported, reasonOversized, "bytes"},
		{"kind", good, edge(func(u *Up) { u.Kind = KindRegion }), nil, StatusForbidden, reasonIdentity, "kind"},
		{"region", good, edge(func(u *Up) { u.Region = "us" }), nil, StatusForbidden, reasonIdentity, "region"},
		{"no region", good, edge(func(u *Up) { u.Region = "" }), nil, StatusForbidden, reasonIdentity, "region"},
		{"pop", good, edge(func(u *Up) { u.Pop = "fra" }), nil, StatusForbidden, reasonIdentity, "pop"},
		{"name", good, edge(func(u *Up) { u.Name = "e2" }), nil, StatusForbidden, reasonIdentity, "name"},
		{"node", good, edge(func(u *Up) { u.Node = NodeID("eu", "ams", "e2") }), nil, StatusForbidden, reasonIdentity, "node"},
		{"edge that calls itself a region", good, edge(func(u *Up) { u.Node = NodeID("eu", "", "") }), nil, StatusForbidden, reasonIdentity, "node"},
		{"lanes", good, edge(func(u *Up) { u.Lanes = 4 }), nil, StatusUnsupported, reasonLanes, "lanes: 4"},
		{"lane", good, edge(func(u *Up) { u.Lane = 0 }), nil, StatusUnsupported, reasonLanes, "lane: 0"},
		{"key of another lane", good, edge(func(u *Up) { u.Sections[0].Deltas[0].Key = 2 << 32 }), nil, StatusUnsupported, reasonLanes, "belongs to lane 0"},
		{"region's kind", far, region(func(u *Up) { u.Kind = KindEdge }), nil, StatusForbidden, reasonIdentity, "kind"},
		{"region's name", far, region(func(u *Up) { u.Region = "ap" }), nil, StatusForbidden, reasonIdentity, "region"},
		{"region's node", far, region(func(u *Up) { u.Node = NodeID("ap", "", "") }), nil, StatusForbidden, reasonIdentity, "node"},
		{"own region", RegionSubject("eu", 1, "eu"), regionUp("eu", "agg-1", 1), nil, StatusForbidden, reasonLoop, "itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := NewInbox("eu", 2)
			raw := c.raw
			if c.u != nil {
				raw = encode(t, c.u)
			}
			u, status, err := in.Admit(1, c.subject, raw)
			if u != nil || err == nil || status != c.status || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Admit = %v, %d, %v, want status %d and %q", u, status, err, c.status, c.want)
			}
			if got := in.Refused(); !maps.Equal(got, map[string]uint64{c.reason: 1}) {
				t.Errorf("Refused = %v, want one for %s", got, c.reason)
			}
			if edges, regions := in.Live(1, time.Hour); edges != 0 || regions != 1 {
				t.Errorf("Live = %d, %d: a refused sender counts", edges, regions)
			}
		})
	}
	_, _, err := NewInbox("eu", 2).Admit(1, good, []byte{8, Version + 1})
	if v := (*VersionError)(nil); !errors.As(err, &v) {
		t.Errorf("%v wraps no VersionError", err)
	}
}

func TestInboxLive(t *testing.T) {
	in := NewInbox("eu", 2)
	mustAdmit(t, in, 10, edgeUp("e1", 1))
	mustAdmit(t, in, 20, edgeUp("e2", 1))
	mustAdmit(t, in, 20, regionUp("us", "agg-1", 1))
	mustAdmit(t, in, 30, regionUp("us", "agg-2", 1))
	mustAdmit(t, in, 40, regionUp("ap", "agg-1", 1))
	for _, c := range []struct {
		now            int64
		within         time.Duration
		edges, regions int
	}{{40, 100, 2, 3}, {40, 29, 1, 3}, {40, 19, 0, 3}, {40, 9, 0, 2}, {41, 0, 0, 1}, {5, 0, 2, 3}} {
		if edges, regions := in.Live(c.now, c.within); edges != c.edges || regions != c.regions {
			t.Errorf("Live(%d, %d) = %d, %d, want %d, %d", c.now, c.within, edges, regions, c.edges, c.regions)
		}
	}
	again := edgeUp("e1", 2)
	again.Incarnation++
	mustAdmit(t, in, 50, again)
	if edges, _ := in.Live(50, 100); edges != 2 {
		t.Errorf("%d edges live after one started again, want 2", edges)
	}
}

// Edges that a PoP invents make its own parts smaller, and nobody else's; all parts are the
// whole together. Where all are counted, those of one PoP are no more than some times
// another's.
func TestInventedEdges(t *testing.T) {
	of := func(pop, name string) *Up {
		u := edgeUp(name, 1)
		u.Pop, u.Node = pop, NodeID("eu", pop, name)
		return u
	}
	in, honest := NewInbox("eu", 2), []*Up{of("ams", "e1"), of("ams", "e2"), of("fra", "e1")}
	for _, u := range honest {
		mustAdmit(t, in, 10, u)
	}
	parts := func(more int) (sum float64) {
		t.Helper()
		for i, u := range honest {
			beside, _ := in.LiveBeside(10, 100, u.Node)
			want := []int{4, 4, 2}[i]
			if more > 0 {
				want = want / 2 * 3 // one PoP more
			}
			if beside != want {
				t.Errorf("LiveBeside of %s/%s = %d with %d invented, want %d", u.Pop, u.Name, beside, more, want)
			}
			sum += 1 / float64(beside)
		}
		return sum
	}
	if sum := parts(0); sum != 1 {
		t.Errorf("parts of %v, want the whole", sum)
	}
	var invented []*Up
	for i := range 900 {
		u := of("sin", fmt.Sprint("x", i))
		mustAdmit(t, in, 10, u)
		invented = append(invented, u)
	}
	sum := parts(900)
	for _, u := range invented {
		beside, _ := in.LiveBeside(10, 100, u.Node)
		sum += 1 / float64(beside)
	}
	if sum < 0.999 || sum > 1.001 {
		t.Errorf("parts of %v, want the whole", sum)
	}
	if n := in.LiveEvenly(10, 100); n != 1+2+6 {
		t.Errorf("LiveEvenly = %d, want 9", n)
	}
	if n := in.LiveEvenly(10+int64(popsEvery), 100); n != 0 {
		t.Errorf("later: LiveEvenly = %d, want none", n)
	}
}

func TestInboxDuplicates(t *testing.T) {
	in := NewInbox("eu", 2)
	step := func(u *Up, want uint64) {
		t.Helper()
		mustAdmit(t, in, 1, u)
		if got := in.Duplicates(); got != want {
			t.Errorf("seq %d at %d of %s: %d duplicates, want %d", u.Seq, u.SentAt, u.Name, got, want)
		}
	}
	step(edgeUp("e1", 1), 0)
	step(edgeUp("e1", 3), 0)
	step(edgeUp("e1", 2), 0) // late
	step(edgeUp("e1", 2), 1)
	step(edgeUp("e1", 3), 2)
	step(edgeUp("e2", 3), 2) // another sender
	lane := edgeUp("e1", 3)
	lane.Lane, lane.Sections[0].Deltas[0].Key = 0, 2<<32
	step(lane, 2) // another lane
	step(edgeUp("e1", 500), 2)
	step(edgeUp("e1", 499), 2)
	step(edgeUp("e1", 3), 2) // too old to tell
	step(edgeUp("e1", 499), 3)
	born := edgeUp("e1", 1)
	born.Incarnation++
	step(born, 3)
	step(edgeUp("e1", 500), 3) // of the earlier start
	step(born, 4)

	step(regionUp("us", "agg-1", 5), 4)
	step(regionUp("us", "agg-2", 5), 4) // another aggregator of the region
	step(regionUp("us", "agg-1", 5), 5)
	restarted := regionUp("us", "agg-1", 5)
	restarted.SentAt = 1000
	step(restarted, 5) // a number used again, later: it started anew
	step(restarted, 6)
}

func TestInboxBounded(t *testing.T) {
	in := NewInbox("eu", 2)
	for i := range maxSenders + 10 {
		mustAdmit(t, in, int64(i), edgeUp(fmt.Sprintf("e%d", i), 1))
		mustAdmit(t, in, int64(i), edgeUp("steady", uint64(i)+1))
	}
	if edges, _ := in.Live(0, time.Hour); edges != maxSenders || len(in.senders) != maxSenders {
		t.Errorf("%d senders remembered in a list and %d in a map, want %d", edges, len(in.senders), maxSenders)
	}
	mustAdmit(t, in, 0, edgeUp("steady", 1+maxSenders))
	if in.Duplicates() != 1 {
		t.Error("a sender heard of all the time was forgotten")
	}
}

// Edges that a PoP invents have its own forgotten, and nobody else's, silent as they are.
func TestInventedEdgesTakeNobodysPlace(t *testing.T) {
	in := NewInbox("eu", 2)
	mustAdmit(t, in, 1, regionUp("us", "a1", 1))
	for i := range 5 {
		u := edgeUp(fmt.Sprint("e", i), 1)
		u.Pop, u.Node = "fra", NodeID("eu", "fra", u.Name)
		mustAdmit(t, in, 1, u)
	}
	for i := range 2 * maxSenders {
		mustAdmit(t, in, 2, edgeUp(fmt.Sprint("x", i), 1))
	}
	beside, _ := in.LiveBeside(3, time.Hour, NodeID("eu", "fra", "e1"))
	if _, regions := in.Live(3, time.Hour); beside != 10 || regions != 2 || len(in.senders) != maxSenders || in.byArrival.Len() != maxSenders {
		t.Errorf("an honest edge is to reckon with %d, of %d regions and %d senders, want 10, 2 and %d", beside, regions, len(in.senders), maxSenders)
	}
}

func TestInboxConcurrent(t *testing.T) {
	in := NewInbox("eu", 2)
	const senders, frames = 8, 50
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for seq := range uint64(frames) {
				u := edgeUp(fmt.Sprintf("e%d", i), seq+1)
				b := encode(t, u)
				if _, _, err := in.Admit(int64(seq), subjectOf(u), b); err != nil {
					t.Error(err)
				}
				if _, _, err := in.Admit(int64(seq), "nowhere", b); err == nil {
					t.Error("admitted on a bad subject")
				}
				in.Live(int64(seq), time.Hour)
			}
		})
	}
	wg.Wait()
	edges, _ := in.Live(0, time.Hour)
	if edges != senders || in.Duplicates() != 0 || in.Refused()[reasonSubject] != senders*frames {
		t.Errorf("%d edges, %d duplicates, refused %v, want %d, 0 and %d", edges, in.Duplicates(), in.Refused(), senders, senders*frames)
	}
}
