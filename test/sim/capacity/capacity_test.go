package capacity

import (
	"math"
	"strings"
	"testing"
	"time"
)

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*math.Abs(want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func TestRanksAreAllKeysAndAllRequests(t *testing.T) {
	for _, keys := range []int{1, 2, 511, 512, 513, 5000, 1_000_000} {
		p := Default(3)
		p.Keys = keys
		n, part := 0.0, 0.0
		for _, r := range p.ranks() {
			n, part = n+r.keys, part+r.keys*r.part
		}
		near(t, "keys", n, float64(keys), 0)
		near(t, "parts", part, 1, 1e-9)
	}
}

// TestRanksInRuns compares the sum in runs with the sum of each.
func TestRanksInRuns(t *testing.T) {
	p := Default(3)
	p.Keys = 100_000
	got, want, sum := 0.0, 0.0, 0.0
	for _, r := range p.ranks() {
		got += r.keys * every(1000*r.part, 1)
	}
	for i := 1; i <= p.Keys; i++ {
		sum += math.Pow(float64(i), -p.Skew)
	}
	for i := 1; i <= p.Keys; i++ {
		want += every(1000*math.Pow(float64(i), -p.Skew)/sum, 1)
	}
	near(t, "entries", got, want, 1e-3)
}

func TestFate(t *testing.T) {
	p := Default(3)
	fleet := float64(p.Regions * p.Edges)
	full := p.Limit / p.Window.Seconds() / fleet // asked so often at each edge, a key is just full
	rare, busy, pressing, over := p.fate(1e-6), p.fate(0.2*full), p.fate(0.6*full), p.fate(4*full)

	near(t, "entries of a rare key", rare.told+rare.again, 1e-6*(1+5), 0.01) // a minute has room for five more
	near(t, "slices of one", rare.cells, 1, 0.01)
	if rare.first < 0.99*rare.told {
		t.Errorf("a rare key is new in %v of %v entries, want nearly all", rare.first, rare.told)
	}
	if busy.told >= coldEvery || busy.hurried > 0 {
		t.Errorf("a busy key is told %v times a second, hurried %v, want at most once and never", busy.told, busy.hurried)
	}
	near(t, "entries of a pressing key", pressing.told, every(pressing.asked, 0.02), 0.05)
	near(t, "charges of a key that is over its limit", over.charged, full, 1e-9)
	near(t, "asking about it, of all entries", over.touched/(over.told+over.touched), 0.75, 0.05)
}

func TestSpans(t *testing.T) {
	p := Default(3) // slices of 1.5 s
	near(t, "rare", p.spans(1e-9, 1), 1, 1e-3)
	near(t, "busy", p.spans(1e6, 1), 1+1/1.5, 1e-3)
	near(t, "busy, for long", p.spans(1e6, 15), 11, 1e-3)
	near(t, "as long as a slice, from both sides", p.spans(2, 1.5-1e-9), p.spans(2, 1.5+1e-9), 1e-6)
}

// TestGrowth: with all else the same, twice the edges have twice the traffic,
// homes are cheaper than a mesh, and one region exports nothing.
func TestGrowth(t *testing.T) {
	of := func(change func(*Plan)) Envelope {
		p := Default(20)
		p.Limit, p.Targets = 1e12, Mesh
		change(&p)
		e, err := Of(p, Measured())
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	base := of(func(*Plan) {})
	twice := of(func(p *Plan) { p.Edges *= 2 })
	near(t, "entries of twice the edges", twice.Region.Entries, 2*base.Region.Entries, 1e-6)
	if homes := of(func(p *Plan) { p.Targets = Homes }); homes.Region.Masters > base.Region.Masters/2 {
		t.Errorf("homes: %v masters, mesh %v", homes.Region.Masters, base.Region.Masters)
	}
	if alone := of(func(p *Plan) { p.Regions = 1 }); alone.Region.Egress != 0 || alone.Region.Exports != 0 || alone.Region.Frames != 0 {
		t.Errorf("a single region exports %+v", alone.Region)
	}
}

// The paper is of what aggregators do that are not told otherwise.
func TestDefaultTargets(t *testing.T) {
	for regions, want := range map[int]string{3: Mesh, 8: Mesh, 9: Homes, 20: Homes, 50: Homes} {
		if got := Default(regions).Targets; got != want {
			t.Errorf("of %d regions: %s, want %s", regions, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	p := Plan{Window: time.Hour * 48, Targets: "all"}
	err := p.Validate()
	for _, want := range []string{"regions 0", "edges 0", "rps 0", "keys 0", "limit 0", "window 48h", "slices 0", "lanes 0", "aggregators 0", `targets "all"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v, want something of %q", err, want)
		}
	}
}

func TestPrint(t *testing.T) {
	var all []Envelope
	for _, regions := range []int{3, 20, 50} {
		p := Default(regions)
		e, err := Of(p, Measured())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	var b strings.Builder
	if err := Print(&b, all); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| 3 regions | 20 regions | 50 regions |", "100 M; 20 M", "masters", "| mesh | homes | homes |", "INFO cpu"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
	for x, want := range map[float64]string{0: "0 B", 999: "999 B", 1500: "1.5 kB", 2.34e10: "23 GB"} {
		if got := size(x); got != want {
			t.Errorf("size(%v) = %q, want %q", x, got, want)
		}
	}
}
