package regional

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/sync"
)

// A region is apart when one that it hears hears others than it does, for longer than it takes
// all to find the same cut; it shares a limit with nobody then, and all have the parts that
// they had before. As soon as they agree, or who told otherwise is not heard, it is not.
func TestApart(t *testing.T) {
	const way = 80 * ms
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_800_000_000) * int64(time.Second)
	node := func(region string) uint64 { return deltasync.NodeID(region, "", "") }
	all, told := node("eu")^node("us")^node("ap"), node("eu")^node("us") // by us, who does not hear ap
	late := int64(apartAfter) + 4*way
	steps := func(lasts int64, us, ap uint64) {
		for end := now + lasts; now < end; now += 10 * ms {
			for j, hears := range []uint64{us, ap} {
				if hears != 0 {
					a.links.says(j, hears, now)
					a.spoken.heard(j, now)
				}
			}
			a.compareHearing(now)
		}
	}
	is := func(what string, want bool) {
		t.Helper()
		if got := a.apart(now); got != want || want && a.aside(now) != 3 || !want && a.aside(now) != a.cutOff(now) {
			t.Errorf("%s: it is apart %v, aside %b; want %v", what, got, a.aside(now), want)
		}
	}
	steps(late, 0, 0)
	is("nobody was heard", false)
	if got := a.hears(now); got != node("eu") {
		t.Errorf("it says that it hears %x, want nobody but itself", got^node("eu"))
	}
	a.links.ways[0], a.links.ways[1] = way, way
	steps(10*late, all, all)
	is("all hear each other", false)
	steps(late/2, told, all)
	is("as a cut is found", false)
	if got := a.links.differ.Load(); got != 3 {
		t.Errorf("as a cut is found: it takes all back but %b of who had their parts, want none", got)
	}
	steps(late/2, all, all)
	is("it is mended", false)
	if got := a.links.differ.Load(); got != 0 {
		t.Errorf("it is mended: it takes all back but %b of who had their parts, want all", got)
	}
	steps(late, told, all)
	is("not all have found it", false)
	steps(50*ms, told, all)
	is("not all see it", true)
	steps(late, told, math.MaxUint64)
	is("nor that", true)
	steps(10*ms, all, all)
	is("it is mended", false)
	steps(late, 0, all) // of a build before
	a.links.hears[0].Store(0)
	steps(2*late, 0, all)
	is("one does not tell", false)
	steps(2*late, told, all)
	is("not all see it", true)
	a.links.sent(0, now-int64(time.Second))
	steps(10*ms, 0, told^node("us")^node("ap"))
	is("one is not heard, by nobody that is", false)
	steps(500*ms, 0, node("eu")^node("ap"))
	if got := a.links.differ.Load(); got != 3 {
		t.Errorf("the two that hear each other have just come to agree: %b of them keep to their parts, want both", got)
	}
	steps(late, 0, node("eu")^node("ap"))
	if got := a.links.differ.Load(); got != 1 {
		t.Errorf("they agree for long: %b keep to their parts, want the one that is not heard", got)
	}
}

// Who has just started takes back nobody whose part was noted: the first that it hears may hear
// nobody else yet, and say that.
func TestWhoStartsHoldsParts(t *testing.T) {
	a, err := New(Config{Region: "eu", Name: "a", Peers: []string{"us", "ap"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_800_000_000) * int64(time.Second)
	node := func(region string) uint64 { return deltasync.NodeID(region, "", "") }
	hears := func(us, ap uint64, want uint64, what string) {
		t.Helper()
		for j, hears := range []uint64{us, ap} {
			if now += 10 * ms; hears != 0 {
				a.links.says(j, hears, now)
				a.spoken.heard(j, now)
			}
		}
		a.compareHearing(now)
		if got := a.links.differ.Load(); got != want {
			t.Errorf("%s: it takes all back but %b, want but %b", what, got, want)
		}
	}
	hears(0, 0, 3, "nobody was heard")
	hears(node("eu")^node("us"), 0, 3, "one was, that hears it alone")
	all := node("eu") ^ node("us") ^ node("ap")
	hears(all, node("eu")^node("ap"), 3, "they differ")
	hears(all, all, 0, "all hear all")
}
