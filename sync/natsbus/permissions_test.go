package natsbus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// system is two regions as they are deployed: eu with the leafs of two PoPs,
// us with one.
type system struct {
	users *proc.NATSUsers
	urls  map[string]string // of a region's server or a PoP's
	leafs map[string]*proc.NATSServer
	hub   *proc.Proxy // where eu's leafs join
}

func startSystem(t *testing.T) *system {
	t.Helper()
	s := &system{users: proc.NewNATSUsers(t), leafs: map[string]*proc.NATSServer{}}
	sites := proc.NATSGateways(t, s.users, "eu", "us")
	s.hub = sites["eu"].Leafs[0]
	s.urls = map[string]string{"eu": sites["eu"].URLs()[0], "us": sites["us"].URLs()[0]}
	for _, pop := range []string{"ams", "fra", "iad"} {
		hub := s.hub
		if pop == "iad" {
			hub = sites["us"].Leafs[0]
		}
		s.leafs[pop] = proc.NATSLeaf(t, s.users, "POP_"+strings.ToUpper(pop), hub)
		s.urls[pop] = s.leafs[pop].URL
	}
	return s
}

// edge is the bus of an edge of pop.
func (s *system) edge(t testing.TB, region, pop, name string) *Bus {
	t.Helper()
	return connect(t, as(t, s.users, "POP_"+strings.ToUpper(pop), "_INBOX_"+region+"."+pop+"."+name, s.urls[pop]))
}

// aggregator is the bus of a region's aggregator.
func (s *system) aggregator(t testing.TB, region string) *Bus {
	t.Helper()
	return connect(t, as(t, s.users, "AGG_"+strings.ToUpper(region), "_INBOX_"+region+".agg-1", s.urls[region]))
}

// answered waits for an answer to a request; others may not have heard yet
// that somebody serves it.
func answered(t testing.TB, b *Bus, subject, want string) {
	t.Helper()
	proc.Until(t, heals, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reply, err := b.Request(ctx, subject, nil)
		if err == nil && string(reply) != want {
			return fmt.Errorf("Request(%s) = %q, want %q", subject, reply, want)
		}
		return err
	})
}

// TestProtocolUnderPermissions has each part do what it must.
func TestProtocolUnderPermissions(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	aggs := map[string]*Bus{}
	for _, region := range []string{"eu", "us"} {
		aggs[region] = s.aggregator(t, region)
		for _, lane := range []int{0, 3} {
			if _, err := aggs[region].Serve(deltasync.LaneSubjects(region, lane), deltasync.Queue(region), func(_ context.Context, subject string, _ []byte) []byte {
				return []byte(region + " heard " + subject)
			}); err != nil {
				t.Fatalf("Serve: %v", err)
			}
			if _, err := aggs[region].Serve(deltasync.ClaimSubjects(region, lane), deltasync.Queue(region), func(_ context.Context, subject string, _ []byte) []byte {
				return []byte(region + " grants " + subject)
			}); err != nil {
				t.Fatalf("Serve: %v", err)
			}
		}
	}
	for _, at := range []struct{ region, pop string }{{"eu", "ams"}, {"eu", "fra"}, {"us", "iad"}} {
		edge := s.edge(t, at.region, at.pop, "e1")
		up := deltasync.EdgeSubject(at.region, 3, at.pop, "e1")
		answered(t, edge, up, at.region+" heard "+up)
		for _, home := range []string{"eu", "us"} { // rights are claimed of any region, and granted by any
			claim := deltasync.ClaimSubject(home, 3, at.region, at.pop, "e1")
			answered(t, edge, claim, home+" grants "+claim)
			grants := make(chan string, 1000)
			sub, err := edge.Subscribe(deltasync.GrantSubjects(at.region), func(subject string, _ []byte) { grants <- subject })
			if err != nil {
				t.Fatalf("Subscribe: %v", err)
			}
			proc.Until(t, heals, func() error {
				if err := aggs[home].Publish(deltasync.GrantSubject(at.region, 3), nil); err != nil {
					return err
				}
				if len(grants) == 0 {
					return fmt.Errorf("an edge of %s hears no grant of %s", at.pop, home)
				}
				return nil
			})
			if err := sub.Stop(); err != nil {
				t.Fatal(err)
			}
		}

		got := make(chan string, 1000)
		if _, err := edge.Subscribe(deltasync.HotSubjects(at.region), func(subject string, _ []byte) { got <- subject }); err != nil {
			t.Fatalf("Subscribe: %v", err)
		}
		hot := deltasync.HotSubject(at.region, 3)
		proc.Until(t, heals, func() error {
			if err := aggs[at.region].Publish(hot, nil); err != nil {
				return err
			}
			if len(got) == 0 {
				return fmt.Errorf("an edge of %s hears no push", at.pop)
			}
			return nil
		})
	}
	for _, way := range [][2]string{{"eu", "us"}, {"us", "eu"}} {
		up := deltasync.RegionSubject(way[1], 3, way[0])
		answered(t, aggs[way[0]], up, way[1]+" heard "+up)
	}
	for _, region := range []string{"eu", "us"} { // two of a region hear of each other, and one answers a newcomer
		newcomer := s.aggregator(t, region)
		beats := make(chan string, 1000)
		if _, err := newcomer.Subscribe(deltasync.LiveSubject(region), func(subject string, _ []byte) { beats <- subject }); err != nil {
			t.Fatalf("Subscribe: %v", err)
		}
		proc.Until(t, heals, func() error {
			if err := aggs[region].Publish(deltasync.LiveSubject(region), nil); err != nil {
				return err
			}
			if len(beats) == 0 {
				return fmt.Errorf("an aggregator of %s hears no beat", region)
			}
			return nil
		})
		if _, err := aggs[region].Serve(deltasync.AskSubject(region), deltasync.Queue(region), func(context.Context, string, []byte) []byte { return []byte("here") }); err != nil {
			t.Fatalf("Serve: %v", err)
		}
		answered(t, newcomer, deltasync.AskSubject(region), "here")
	}
	for name, b := range aggs {
		if st := b.Status(); st.Reconnects != 0 {
			t.Errorf("the aggregator of %s lost its connection: %+v", name, st)
		}
	}
}

// act is something that a user tries.
type act struct {
	user, at string
	say      string    // subject that it publishes
	hear     [2]string // pattern that it subscribes to, and a subject of that
	allowed  bool
}

func (a act) String() string {
	if a.say != "" {
		return fmt.Sprintf("%s at %s says %s", a.user, a.at, a.say)
	}
	return fmt.Sprintf("%s at %s hears %s on %s", a.user, a.at, a.hear[1], a.hear[0])
}

// TestPermissions tries each forbidden act, and beside it what is allowed, so
// that nothing counts as refused which only did not arrive.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	var acts []act
	says := func(allowed bool, user, at string, subjects ...string) {
		for _, subject := range subjects {
			acts = append(acts, act{user: user, at: at, say: subject, allowed: allowed})
		}
	}
	hears := func(allowed bool, user, at string, pairs ...[2]string) {
		for _, pair := range pairs {
			acts = append(acts, act{user: user, at: at, hear: pair, allowed: allowed})
		}
	}
	for _, at := range []string{"ams", "eu"} { // over its leaf, and without
		says(true, "POP_AMS", at, "sg.v1.up.eu.0.e.ams.e1", "sg.v1.up.eu.63.e.ams.e2", "sg.v1.snap.eu.0", "sg.v1.snap.eu.63",
			"sg.v1.claim.eu.0.e.eu.ams.e1", "sg.v1.claim.us.63.e.eu.ams.e1", "sg.v1.tell.eu.e.ams.e1")
		says(false, "POP_AMS", at,
			"sg.v1.up.eu.0.e.fra.e1",                    // for another PoP
			"sg.v1.up.eu.0.r.us",                        // for a region
			"sg.v1.up.us.0.e.ams.e1", "sg.v1.snap.us.0", // to another region
			"sg.v1.claim.eu.0.e.eu.fra.e1", "sg.v1.claim.us.0.e.us.ams.e1", // rights for another PoP, or region
			"sg.v1.tell.eu.e.fra.e1", "sg.v1.tell.us.e.ams.e1", "sg.v1.told.eu", // what another decided
			"sg.v1.grant.eu.0", "sg.v1.grant.us.0",
			"sg.v1.hot.eu.0", "sg.v1.hot.us.0", "sg.v1.live.eu", "sg.v1.live.eu.ask", // as an aggregator
			"_INBOX_eu.fra.e1.n.1", "_INBOX_eu.ams.e2.n.1", // an answer to an edge
			"_INBOX_eu.agg-1.n.1", "_INBOX_us.agg-1.n.1", // or to an aggregator
			"sg.v1.audit.eu.0", "sg.v1.up.eu.0.e.ams.e1.more", // what there is no use for
			"$JS.eu.API.STREAM.CREATE.x", "$KV.rules.x", "x", // what keeps the rules
		)
		hears(true, "POP_AMS", at, [2]string{"_INBOX_eu.ams.e1.n.*", "_INBOX_eu.ams.e1.n.1"}, [2]string{"sg.v1.hot.eu.*", "sg.v1.hot.eu.0"})
		hears(false, "POP_AMS", at,
			[2]string{"_INBOX_eu.fra.e1.n.*", "_INBOX_eu.fra.e1.n.1"}, // what another is told
			[2]string{"_INBOX_eu.agg-1.n.*", "_INBOX_eu.agg-1.n.1"},
			[2]string{"_INBOX_eu.>", "_INBOX_eu.fra.e1.n.1"},
			[2]string{"_INBOX_eu.*.e1.n.*", "_INBOX_eu.ams.e1.n.1"},
			[2]string{">", "sg.v1.hot.us.0"},
			[2]string{"sg.v1.hot.us.*", "sg.v1.hot.us.0"},
			[2]string{"sg.v1.up.eu.>", "sg.v1.up.eu.0.e.fra.e1"}, // what others count
			[2]string{"sg.v1.up.eu.*.e.ams.*", "sg.v1.up.eu.0.e.ams.e2"},
			[2]string{"sg.v1.tell.eu.>", "sg.v1.tell.eu.e.fra.e1"}, [2]string{"sg.v1.told.eu", "sg.v1.told.eu"},
			[2]string{"sg.v1.snap.eu.3", "sg.v1.snap.eu.3"}, [2]string{"sg.v1.live.eu.ask", "sg.v1.live.eu.ask"}, [2]string{"sg.v1.audit.eu.3", "sg.v1.audit.eu.3"}, // and to answer in its stead
		)
	}
	// Whoever runs the server of a PoP gives out what rights he likes, there.
	says(true, "OPERATOR", "ams", "sg.v1.up.eu.0.e.ams.e1")
	says(false, "OPERATOR", "ams", "sg.v1.up.eu.0.e.fra.e1", "sg.v1.up.us.0.e.iad.e1", "sg.v1.up.eu.0.r.us", "sg.v1.hot.eu.0", "_INBOX_eu.fra.e1.n.1")
	hears(true, "OPERATOR", "ams", [2]string{"_INBOX_eu.ams.e1.n.*", "_INBOX_eu.ams.e1.n.1"})
	hears(false, "OPERATOR", "ams", [2]string{"_INBOX_eu.fra.e1.n.*", "_INBOX_eu.fra.e1.n.1"}, [2]string{"sg.v1.up.eu.>", "sg.v1.up.eu.0.e.fra.e1"}, [2]string{"_INBOX_eu.>", "_INBOX_eu.fra.e1.n.1"}, [2]string{"sg.v1.hot.us.*", "sg.v1.hot.us.0"})

	says(true, "AGG_EU", "eu", "sg.v1.up.us.0.r.eu", "sg.v1.up.ap.63.r.eu", "sg.v1.hot.eu.0", "sg.v1.live.eu", "sg.v1.live.eu.ask", "sg.v1.audit.us.63", "sg.v1.told.us")
	says(false, "AGG_EU", "eu",
		"sg.v1.up.us.0.r.ap",     // for another region
		"sg.v1.up.eu.0.e.ams.e1", // for an edge
		"sg.v1.tell.eu.e.ams.e1",
		"sg.v1.hot.us.0",                     // to another region's edges
		"sg.v1.live.us", "sg.v1.live.us.ask", // or its aggregators
		"_INBOX_eu.ams.e1.n.1", "_INBOX_us.agg-1.n.1", // answers nobody asked for
		"$JS.eu.API.STREAM.CREATE.x", "sg.v1.audit.us", "sg.v1.audit.us.0.more", // what there is no use for
	)
	hears(true, "AGG_EU", "eu",
		[2]string{"sg.v1.up.eu.>", "sg.v1.up.eu.0.r.us"}, [2]string{"sg.v1.up.eu.3.>", "sg.v1.up.eu.3.e.ams.e1"},
		[2]string{"sg.v1.live.eu", "sg.v1.live.eu"}, [2]string{"sg.v1.live.eu.ask", "sg.v1.live.eu.ask"}, [2]string{"sg.v1.snap.eu.3", "sg.v1.snap.eu.3"}, [2]string{"sg.v1.audit.eu.3", "sg.v1.audit.eu.3"},
		[2]string{"sg.v1.tell.eu.>", "sg.v1.tell.eu.e.ams.e1"}, [2]string{"sg.v1.told.eu", "sg.v1.told.eu"},
		[2]string{"_INBOX_eu.agg-1.n.*", "_INBOX_eu.agg-1.n.1"})
	hears(false, "AGG_EU", "eu",
		[2]string{"sg.v1.live.us", "sg.v1.live.us"}, [2]string{"sg.v1.audit.us.*", "sg.v1.audit.us.0"}, [2]string{"sg.v1.tell.us.>", "sg.v1.tell.us.e.iad.e1"}, [2]string{"sg.v1.told.us", "sg.v1.told.us"}, // nor answer in its stead
		[2]string{"sg.v1.up.us.>", "sg.v1.up.us.0.e.iad.e1"}, [2]string{"sg.v1.up.>", "sg.v1.up.us.0.e.iad.e1"}, // another region's counts
		[2]string{"_INBOX_eu.ams.e1.n.*", "_INBOX_eu.ams.e1.n.1"}, [2]string{"_INBOX_eu.>", "_INBOX_eu.ams.e1.n.1"}, // what edges are told
		[2]string{"_INBOX_us.agg-1.n.*", "_INBOX_us.agg-1.n.1"})

	all := operator(t, s.users, s.urls["eu"])
	heard := make(chan string, 1000)
	if _, err := all.Subscribe(">", func(m *nats.Msg) { heard <- m.Subject + " " + string(m.Data) }); err != nil {
		t.Fatal(err)
	}
	if err := all.Flush(); err != nil {
		t.Fatal(err)
	}
	users := map[string]*nats.Conn{}
	for _, a := range acts {
		nc := users[a.user+a.at]
		if nc == nil {
			nc = dial(t, s, a.user, a.at)
			users[a.user+a.at] = nc
		}
		var got bool
		if a.say != "" {
			got = said(t, nc, a.user, a.say, heard)
		} else {
			got = hear(t, nc, a.user, a.hear, all)
		}
		if got != a.allowed {
			t.Errorf("%v: %v, want %v", a, got, a.allowed)
		}
	}
}

// marks are what each user may say and hear in any case: what came before one
// on the same way and has not arrived never will. A hear is the beginning of a
// subject, one of no pattern that the user tries: a region may know of a pattern
// after its leaf was told to forget it, and send a mark along that it does not know
// yet.
var marks = map[string]struct{ say, hear string }{
	"POP_AMS":  {"sg.v1.up.eu.9.e.ams.mark", "_INBOX_eu.ams.mark."},
	"OPERATOR": {"sg.v1.up.eu.9.e.ams.mark", "sg.v1.hot.eu."}, // at ams
	"AGG_EU":   {"sg.v1.hot.eu.9", "_INBOX_eu.mark.a."},
}

// said reports whether somebody hears what nc says.
func said(t *testing.T, nc *nats.Conn, user, subject string, heard <-chan string) (arrived bool) {
	t.Helper()
	mark := marks[user].say
	say := func(subject, payload string) {
		if err := nc.Publish(subject, []byte(payload)); err != nil {
			t.Fatalf("publish %s: %v", subject, err)
		}
	}
	marked := func(payload string, within time.Duration) error {
		for end := time.After(within); ; {
			select {
			case s := <-heard:
				arrived = arrived || s == subject+" now"
				if s == mark+" "+payload {
					return nil
				}
			case <-end:
				return errors.New("the mark did not arrive")
			}
		}
	}
	proc.Until(t, heals, func() error { // somebody listens
		say(mark, "")
		return marked("", 100*time.Millisecond)
	})
	say(subject, "now")
	say(mark, "now")
	if err := marked("now", heals); err != nil {
		t.Fatal(err)
	}
	return arrived
}

// hear reports whether nc hears what is said on a subject of the pattern.
func hear(t *testing.T, nc *nats.Conn, user string, what [2]string, all *nats.Conn) (arrived bool) {
	t.Helper()
	mark := marks[user].hear + nats.NewInbox()[len("_INBOX."):] // nobody has heard of it
	var subs [2]*nats.Subscription
	for i, pattern := range []string{what[0], mark} {
		sub, err := nc.SubscribeSync(pattern)
		if err != nil {
			t.Fatalf("subscribe to %s: %v", pattern, err)
		}
		defer sub.Unsubscribe() // refused ones are gone already
		subs[i] = sub
	}
	say := func(subject, payload string) {
		if err := all.Publish(subject, []byte(payload)); err != nil {
			t.Fatalf("publish %s: %v", subject, err)
		}
	}
	proc.Until(t, heals, func() error { // the subscriptions are known
		say(mark, "")
		_, err := subs[1].NextMsg(100 * time.Millisecond)
		return err
	})
	say(what[1], "now")
	say(mark, "now")
	for {
		m, err := subs[1].NextMsg(heals)
		if err != nil {
			t.Fatalf("what came after %s was said on %s did not arrive: %v", what[1], what[0], err)
		}
		if string(m.Data) == "now" {
			break
		}
	}
	for {
		m, err := subs[0].NextMsg(time.Nanosecond)
		if err != nil {
			return false
		}
		if m.Subject == what[1] { // and not the mark
			return true
		}
	}
}

// dial is a connection of a user that bears refusals.
func dial(t *testing.T, s *system, user, at string) *nats.Conn {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(s.users.SeedFile(t, user))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.urls[at], key, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatalf("%s at %s: %v", user, at, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func TestStrangersStayOutside(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	site := proc.NATSCluster(t, users, "eu", 1)
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(stranger, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	refusesAtOnce(t, connect(t, Config{URLs: site.URLs(), NKeySeedFile: stranger}))
	refusesAtOnce(t, connect(t, Config{URLs: site.URLs()}))
}

// told is what a leaf's server was told that somebody wants to hear.
func told(t testing.TB, s *proc.NATSServer) (subjects []string) {
	t.Helper()
	var z struct {
		Leafs []struct {
			Subs []string `json:"subscriptions_list"`
		}
	}
	if err := s.Monitor("leafz?subs=1", &z); err != nil {
		t.Fatal(err)
	}
	for _, l := range z.Leafs {
		subjects = append(subjects, l.Subs...)
	}
	return subjects
}

// TestNoInterestAcrossPoPs is invariant 14: what one PoP's edges listen to is
// not told to other PoPs, near or far.
func TestNoInterestAcrossPoPs(t *testing.T) {
	t.Parallel()
	s := startSystem(t)
	// A leaf that may hear everything shows what would be told.
	s.leafs["open"] = proc.NATSLeaf(t, s.users, "OPERATOR", s.hub)
	agg := s.aggregator(t, "eu")
	if _, err := agg.Serve(deltasync.LaneSubjects("eu", 0), deltasync.Queue("eu"), func(context.Context, string, []byte) []byte { return []byte("ok") }); err != nil {
		t.Fatalf("Serve: %v", err)
	}
	const edges = 10
	for i := range edges {
		name := fmt.Sprint("e", i)
		edge := s.edge(t, "eu", "ams", name)
		if _, err := edge.Subscribe(deltasync.HotSubjects("eu"), func(string, []byte) {}); err != nil {
			t.Fatalf("Subscribe: %v", err)
		}
		answered(t, edge, deltasync.EdgeSubject("eu", 0, "ams", name), "ok")
	}
	count := func(pop, part string) (n int) {
		for _, subject := range told(t, s.leafs[pop]) {
			if strings.Contains(subject, part) {
				n++
			}
		}
		return n
	}
	proc.Until(t, heals, func() error {
		if n := count("open", ".ams."); n < edges {
			return fmt.Errorf("a leaf that may hear all was told %d subjects of %d edges", n, edges)
		}
		return nil
	})
	// One subscription more, which each PoP may be told of: what was told
	// before it has arrived.
	settled := operator(t, s.users, s.urls["eu"])
	for _, subject := range []string{"sg.v1.up.eu.0.e.fra.mark", "sg.v1.up.us.0.e.iad.mark"} {
		if _, err := settled.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
	}
	for _, pop := range []string{"fra", "iad"} {
		proc.Until(t, heals, func() error {
			if count(pop, ".mark") == 0 {
				return fmt.Errorf("%s was told of %q, want the mark among them", pop, told(t, s.leafs[pop]))
			}
			return nil
		})
		if n := count(pop, "ams"); n != 0 {
			t.Errorf("%s was told of %q, want nothing of ams", pop, told(t, s.leafs[pop]))
		}
	}
}
