package regional_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/alone"
)

// misfit is a region that logs, and what it does so far.
type misfit struct {
	*region
	log bytes.Buffer
}

func newMisfit(t *testing.T, name string, lanes int, peers ...string) *misfit {
	t.Helper()
	m := &misfit{}
	a, err := regional.New(regional.Config{
		Boot: still, Region: name, Name: "a1", Peers: peers, Lanes: lanes, Incarnation: 1, StoreTimeout: time.Second, Logger: slog.New(slog.NewTextHandler(&m.log, nil)),
	}, newStore(&start))
	if err != nil {
		t.Fatal(err)
	}
	m.region = &region{Aggregator: a, t: t, name: name, now: start}
	return m
}

// pass lets both tell each other, and do what else they do, for so long.
func pass(d time.Duration, a, b *misfit) {
	for end := a.now.Add(d); a.now.Before(end); {
		a.now, b.now = a.now.Add(250*time.Millisecond), a.now.Add(250*time.Millisecond)
		for _, of := range []struct{ from, to *misfit }{{a, b}, {b, a}} {
			for _, o := range of.from.Exports(of.from.now) {
				if err := of.from.Receive(of.from.now, o, of.to.Handle(context.Background(), of.to.now, o.Subject, o.Payload)); err != nil {
					of.from.Lost(of.from.now, o)
				}
			}
			of.from.Tick(of.from.now)
		}
	}
}

// has checks which misfits stand, and in how many lines of the log they were told.
func (m *misfit) has(lines int, text string, want ...regional.Misfit) {
	m.t.Helper()
	st := m.Stats(m.now)
	if !slices.Equal(st.Misfits, want) {
		m.t.Errorf("%v after the start %s sees %v, want %v", m.now.Sub(start), m.name, st.Misfits, want)
	}
	if got := m.log.String(); strings.Count(got, "level=WARN") != lines || !strings.Contains(got, text) {
		m.t.Errorf("%v after the start the log of %s is\n%swant %d warnings, and %q", m.now.Sub(start), m.name, got, lines, text)
	}
	if len(st.Unheard) > 0 {
		m.t.Errorf("%s says that %v do not answer", m.name, st.Unheard)
	}
}

// Regions with other lanes than each other say so, and not that nobody is there;
// once one is mended the other hears it at once.
func TestRegionsWithOtherLanes(t *testing.T) {
	eu, us := newMisfit(t, "eu", 1, "us"), newMisfit(t, "us", 2, "eu")
	pass(time.Minute, eu, us)
	eu.has(1, "(2) than this one", regional.Misfit{Region: "us", Setting: regional.SettingLanes, Lanes: 2})
	us.has(1, "(1) than this one", regional.Misfit{Region: "eu", Setting: regional.SettingLanes, Lanes: 1})
	if strings.Contains(eu.log.String()+us.log.String(), "spelt") {
		t.Error("they are asked how they are spelt")
	}
	mended := newMisfit(t, "us", 1, "eu")
	(&edge{name: "u1"}).tell(mended.region, 9, charge(start, 3))
	mended.now = eu.now
	pass(time.Second, eu, mended)
	if down := (&edge{name: "e1"}).tell(eu.region, 9); charges(down.Totals[0].Others) != 3 {
		t.Errorf("a second after us was mended eu hears %d of it, want 3", charges(down.Totals[0].Others))
	}
	pass(20*time.Second, eu, mended)
	eu.has(1, "no misfit with another region")
	mended.has(0, "")
}

// Only one of the two may name the other: what it is told is enough.
func TestLanesOfWhoIsHeardAlone(t *testing.T) {
	eu, us := newMisfit(t, "eu", 1), newMisfit(t, "us", 2, "eu")
	pass(time.Second, eu, us)
	eu.has(1, "lanes", regional.Misfit{Region: "us", Setting: regional.SettingLanes, Lanes: 2})
	us.has(1, "lanes", regional.Misfit{Region: "eu", Setting: regional.SettingLanes, Lanes: 1})
}

// An aggregator of the build before mutes, and then names the lanes that are the
// same by now: that is no misfit.
func TestLanesThatAreTheSame(t *testing.T) {
	eu := newMisfit(t, "eu", 1, "us")
	for range 80 {
		eu.now = eu.now.Add(250 * time.Millisecond)
		for _, o := range eu.Exports(eu.now) {
			down := deltasync.Down{Status: deltasync.StatusForbidden, Region: "us", Node: deltasync.NodeID("us", "", ""), Mistake: deltasync.MistakeLanes, Lanes: 1}
			b, err := down.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			if eu.Receive(eu.now, o, b) == nil {
				t.Fatal("a refusal is taken")
			}
			eu.Lost(eu.now, o)
		}
		eu.Tick(eu.now)
	}
	if st := eu.Stats(eu.now); len(st.Misfits) > 0 || len(st.Unheard) != 1 {
		t.Errorf("misfits %v, silent %v; want us silent alone", st.Misfits, st.Unheard)
	}
}

// Regions whose edges have another secret say so, both, whichever heard it first;
// not before any edge has said it, and of an older build never.
func TestRegionsWithOtherSecrets(t *testing.T) {
	eu, us := newMisfit(t, "eu", 1, "us"), newMisfit(t, "us", 1, "eu")
	e, u := &edge{name: "e1", secret: 5}, &edge{name: "u1"}
	live := func(d time.Duration) {
		for range d / (500 * time.Millisecond) {
			e.tell(eu.region, 9, charge(start, 5))
			u.tell(us.region, 9, charge(start, 5))
			pass(500*time.Millisecond, eu, us)
		}
	}
	live(10 * time.Second)
	eu.has(0, "")
	us.has(0, "")
	u.secret = 7
	live(20 * time.Second)
	eu.has(1, "SPILLGATE_SECRET", regional.Misfit{Region: "us", Setting: regional.SettingSecret})
	us.has(1, "SPILLGATE_SECRET", regional.Misfit{Region: "eu", Setting: regional.SettingSecret})
	if down := u.tell(us.region, 9); charges(down.Totals[0].Others) != 5 {
		t.Errorf("us hears %d of eu, want 5: counts are taken in any case", charges(down.Totals[0].Others))
	}
	pass(11*time.Second, eu, us) // u1 is stopped, mended and started again
	u.secret = 5
	live(20 * time.Second)
	eu.has(1, "no misfit with another region")
	us.has(1, "no misfit with another region")
}

// Who sends tells its secret, and is told in turn: one way is enough.
func TestSecretIsToldToWhoSends(t *testing.T) {
	eu, us := newMisfit(t, "eu", 1, "us"), newMisfit(t, "us", 1)
	for range 10 {
		(&edge{name: "e1", secret: 5}).tell(eu.region, 9, charge(start, 5))
		(&edge{name: "u1", secret: 7}).tell(us.region, 9, charge(start, 5))
		pass(500*time.Millisecond, eu, us)
	}
	eu.has(2, "secret", regional.Misfit{Region: "us", Setting: regional.SettingPeers, Unnamed: true}, regional.Misfit{Region: "us", Setting: regional.SettingSecret})
	us.has(2, "secret", regional.Misfit{Region: "eu", Setting: regional.SettingPeers}, regional.Misfit{Region: "eu", Setting: regional.SettingSecret})
}

// A region that is told by one that it does not name says so, now and then, for as
// long as that goes on, and so does the other, which is told.
func TestRegionThatIsNoPeer(t *testing.T) {
	alone.Mark(t)
	eu, us := newMisfit(t, "eu", 1, "us"), newMisfit(t, "us", 1)
	pass(59*time.Minute, eu, us)
	eu.has(1, "name this region there", regional.Misfit{Region: "us", Setting: regional.SettingPeers, Unnamed: true})
	us.has(1, "name it among the peers", regional.Misfit{Region: "eu", Setting: regional.SettingPeers})
	pass(2*time.Minute, eu, us)
	us.has(2, "peer=eu", regional.Misfit{Region: "eu", Setting: regional.SettingPeers})
	for range 10 { // eu is gone
		us.now = us.now.Add(time.Second)
		us.Tick(us.now)
	}
	us.has(2, "no misfit with another region")
	eu.now = us.now
	pass(time.Minute, eu, us) // and back, which was said not long ago
	us.has(2, "", regional.Misfit{Region: "eu", Setting: regional.SettingPeers})
}

// Names of regions that are no peers are a sender's to invent.
func TestMisfitsAreBounded(t *testing.T) {
	alone.Mark(t)
	us := newMisfit(t, "us", 1)
	for i := range 1000 {
		from := fmt.Sprint("r", i)
		up := deltasync.Up{Kind: deltasync.KindRegion, Region: from, Name: "a1", Node: deltasync.NodeID(from, "", ""), Lanes: 1, Seq: 1}
		b, err := up.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		us.Handle(context.Background(), us.now, deltasync.RegionSubject("us", 0, from), b)
		us.Tick(us.now)
	}
	if n := len(us.Stats(us.now).Misfits); n != 128 || strings.Count(us.log.String(), "level=WARN") != n {
		t.Errorf("%d misfits, %d warnings, want 128", n, strings.Count(us.log.String(), "level=WARN"))
	}
}
