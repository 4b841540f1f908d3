package regional

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
)

// tells is an aggregator that hears what edges decided.
type tells struct {
	t   testing.TB
	a   *Aggregator
	now time.Time
}

// listening is an aggregator that does nothing else.
func listening(region string, peers ...string) *Aggregator {
	return &Aggregator{cfg: Config{Region: region, Peers: peers, Logger: slog.New(slog.DiscardHandler)}, decided: newDecided()}
}

func newTells(t testing.TB, rules *limit.Set) *tells {
	t.Helper()
	a := listening("eu")
	if rules != nil {
		a.decided.setRules(rules)
	}
	return &tells{t: t, a: a, now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}
}

// hear has it hear what an edge tells at a life of it.
func (x *tells) hear(edge string, incarnation, seq uint64, whole bool, rules ...deltasync.Told) error {
	x.t.Helper()
	messages, err := deltasync.Tells(deltasync.Tell{Incarnation: incarnation, Seq: seq, Whole: whole}, rules)
	if err != nil || len(messages) != 1 {
		x.t.Fatal(len(messages), err)
	}
	return x.a.HearTell(x.now, deltasync.TellSubject("eu", "ams", edge), messages[0])
}

func (x *tells) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

func toldOf(version, allow, deny, newly uint64) deltasync.Told {
	return deltasync.Told{Namespace: "shop", Version: version, Rule: "a", Decided: deltasync.Decisions{Allow: allow, Deny: deny}, Trials: [2][2]uint64{{allow, 0}, {newly, 0}}}
}

func (x *tells) is(what string, edges, partial int, all, denied, version, since, newly uint64) {
	x.t.Helper()
	got := x.a.Decided(x.now, "shop", "a")
	if len(got.Rules) != 1 {
		x.t.Fatalf("%s: told is %+v", what, got)
	}
	r := got.Rules[0]
	if got.Edges != edges || got.Partial != partial || r.Decided.All() != all || r.Decided.Denied() != denied || r.Version != version || r.Since.Decided.All() != since || r.Since.Trials[1][0] != newly {
		x.t.Errorf("%s: told is %+v, want %d edges, %d of them in part, %d decided, %d denied, and by version %d %d decided, %d newly denied", what, got, edges, partial, all, denied, version, since, newly)
	}
}

func TestDecidedSums(t *testing.T) {
	x := newTells(t, nil)
	x.must(x.hear("e1", 5, 1, true, toldOf(7, 10, 2, 1)))
	x.must(x.hear("e2", 5, 4, false, toldOf(7, 3, 0, 0)))
	x.is("two edges", 2, 1, 15, 2, 7, 15, 1)
	x.must(x.hear("e1", 5, 1, true, toldOf(7, 99, 9, 9))) // once more
	x.is("what came twice", 2, 1, 15, 2, 7, 15, 1)
	x.must(x.hear("e1", 5, 3, false, toldOf(7, 14, 2, 1)))
	x.must(x.hear("e2", 5, 5, true))
	x.is("one was lost", 2, 0, 19, 2, 7, 19, 1)
	x.must(x.hear("e1", 5, 4, false, toldOf(8, 1, 1, 1)))
	x.is("a new version at one", 2, 0, 21, 3, 8, 2, 1)
	x.must(x.hear("e2", 5, 6, false, toldOf(7, 4, 0, 0)))
	x.is("the other is behind", 2, 0, 22, 3, 8, 2, 1)
	x.must(x.hear("e2", 9, 1, true, toldOf(8, 5, 0, 0)))
	x.is("it starts anew", 2, 0, 27, 3, 8, 7, 1)
	if err := x.hear("e2", 5, 7, false, toldOf(8, 50, 0, 0)); !errors.Is(err, errToldOlder) {
		t.Errorf("of a life before: %v", err)
	}
	x.now = x.now.Add(tellsLast)
	x.must(x.hear("e2", 5, 8, true, toldOf(8, 1, 0, 0))) // its clock was set back
	x.is("one is silent", 1, 0, 28, 3, 8, 8, 1)
	x.must(x.hear("e1", 5, 5, false, toldOf(8, 2, 1, 1)))
	x.is("and comes back", 2, 0, 29, 3, 8, 9, 1)
}

// What an edge told is not counted twice, though it was forgotten.
func TestDecidedForgets(t *testing.T) {
	x := newTells(t, nil)
	x.must(x.hear("e1", 5, 1, true, toldOf(7, 10, 0, 0)))
	for range 8 {
		x.now = x.now.Add(tellsForgot / 4)
		x.a.decided.turn(x.now)
	}
	if n := len(x.a.decided.edges); n != 0 {
		t.Fatalf("%d edges are known after %v", n, 2*tellsForgot)
	}
	x.is("silent for hours", 0, 0, 10, 0, 7, 10, 0)
	x.must(x.hear("e1", 5, 9, false, toldOf(7, 12, 0, 0)))
	x.must(x.hear("e1", 5, 10, true, toldOf(7, 14, 0, 0)))
	x.is("it comes back", 1, 0, 10, 0, 7, 10, 0)
	x.must(x.hear("e1", 5, 11, true, toldOf(7, 15, 0, 0)))
	x.is("it tells on", 1, 0, 11, 0, 7, 11, 0)
}

func TestDecidedLastMinute(t *testing.T) {
	x := newTells(t, nil)
	x.a.decided.turn(x.now)
	x.must(x.hear("e1", 5, 1, true, toldOf(7, 1000, 0, 0))) // whenever that was
	for i := range uint64(12) {
		x.now = x.now.Add(10 * time.Second)
		x.must(x.hear("e1", 5, 2+i, false, toldOf(7, 1000+20*(i+1), 0, 0)))
		x.a.decided.turn(x.now)
	}
	r := x.a.Decided(x.now, "", "").Rules[0]
	if n := r.Minute.Decided.All(); n != 120 || r.Seconds != 60 {
		t.Errorf("%d were decided in the last %v s, want 120 in 60", n, r.Seconds)
	}
}

// Keys that several edges saw count once.
func TestDecidedKeys(t *testing.T) {
	x := newTells(t, nil)
	for i, edge := range []string{"e1", "e2"} {
		var all, denied deltasync.Sketch
		for key := range deltasync.Key(30) {
			if all.Add(key + deltasync.Key(10*i)); key < 10 {
				denied.Add(key)
			}
		}
		told := toldOf(7, 30, 10, 0)
		told.Keys, told.KeysDenied = all.Bytes(), denied.Bytes()
		x.must(x.hear(edge, 5, 1, true, told))
	}
	if r := x.a.Decided(x.now, "", "").Rules[0]; r.Keys < 25 || r.Keys > 55 || r.KeysDenied < 6 || r.KeysDenied > 14 {
		t.Errorf("%d keys are told, %d of them denied; want about 40 and 10", r.Keys, r.KeysDenied)
	}
	x.now = x.now.Add(tellsLast)
	if r := x.a.Decided(x.now, "", "").Rules[0]; r.Keys != 0 || r.KeysOf != nil {
		t.Errorf("of edges that are silent %d keys are told", r.Keys)
	}
}

// Who means ill fills no more than his PoP's part, has no version come that there is not, and is muted.
func TestDecidedBounds(t *testing.T) {
	set := rulesNamed(t, "a")
	x := newTells(t, set)
	made := set.Namespace("shop").Version
	x.must(x.hear("e1", 5, 1, true, toldOf(made+1, 10, 0, 0), deltasync.Told{Namespace: "shop", Rule: "b", Decided: deltasync.Decisions{Allow: 1}}, deltasync.Told{Namespace: "bank", Rule: "a"}))
	if got := x.a.Decided(x.now, "", ""); len(got.Rules) != 0 || got.Partial != 1 {
		t.Errorf("of rules and versions that are not known is told %+v", got)
	}
	x.must(x.hear("e1", 5, 2, true, toldOf(made, 10, 0, 0)))
	x.is("of those that are", 1, 0, 10, 0, made, 10, 0)

	x = newTells(t, nil)
	for i := range 2 * mostDecided / 1000 {
		var rules []deltasync.Told
		for j := range 700 {
			rules = append(rules, deltasync.Told{Namespace: "shop", Rule: fmt.Sprintf("%d-%d", i, j)})
		}
		messages, err := deltasync.Tells(deltasync.Tell{Incarnation: 1, Seq: 1}, rules)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			err = x.a.HearTell(x.now, deltasync.TellSubject("eu", "ams", fmt.Sprintf("e%d", i)), m)
		}
		if full := (i+1)*700 > mostDecided*3/4; full != errors.Is(err, errToldRoom) {
			t.Errorf("rules of edge %d: %v", i, err)
		}
	}
	bad := func(edge string) error {
		return x.a.HearTell(x.now, deltasync.TellSubject("eu", "ams", edge), []byte("{"))
	}
	var muted *deltasync.MutedError
	for range 101 {
		if err := bad("bad"); errors.As(err, &muted) {
			break
		}
	}
	if muted == nil || !strings.Contains(muted.Error(), "ams/bad") {
		t.Errorf("who sends what cannot be read is not muted: %v", muted)
	}
	if err := bad("bad"); !errors.Is(err, errToldMuted) {
		t.Errorf("who is muted is heard: %v", err)
	}
	if err := bad("good"); !errors.Is(err, errToldBad) || errors.Is(err, errToldMuted) {
		t.Errorf("another is muted: %v", err)
	}
	if err := x.a.HearTell(x.now, deltasync.TellSubject("us", "ams", "e"), nil); !errors.Is(err, errToldSender) {
		t.Errorf("of another region: %v", err)
	}
}

func rulesNamed(t testing.TB, names ...string) *limit.Set {
	t.Helper()
	doc := limit.Document{Namespace: "shop", Version: 7}
	for _, name := range names {
		doc.Rules = append(doc.Rules, limit.RuleSpec{Name: name, Rates: []limit.RateSpec{{Limit: 5, Per: time.Minute}}})
	}
	set, err := limit.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Regions say to each other what their edges told.
func TestDecidedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := membus.New()
		var subs []served
		var all []*Aggregator
		for _, region := range []string{"eu", "us"} {
			a := listening(region, "us", "ap")
			sub, err := a.hearTells(bus)
			if err != nil {
				t.Fatal(err)
			}
			subs, all = append(subs, sub), append(all, a)
		}
		messages, err := deltasync.Tells(deltasync.Tell{Incarnation: 1, Seq: 1, Whole: true}, []deltasync.Told{toldOf(7, 10, 2, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := bus.Publish(deltasync.TellSubject("us", "iad", "e1"), messages[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		time.Sleep(20 * time.Second)
		got := all[0].DecidedElsewhere(context.Background(), "shop", "")
		if len(got) != 2 || got[0].Region != "us" || !got[0].Complete() || len(got[0].Rules) != 1 || got[0].Rules[0].Decided.Denied() != 2 || got[1].Heard || got[1].Region != "ap" {
			t.Errorf("elsewhere is told %+v", got)
		}
		if own := all[0].Decided(time.Now(), "", ""); len(own.Rules) != 0 {
			t.Errorf("here is told %+v", own)
		}
		for _, s := range subs {
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		}
		_ = bus.Close()
	})
}
