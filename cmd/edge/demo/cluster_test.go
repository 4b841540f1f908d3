package demo

import (
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/membus"
	"github.com/spillgate/spillgate/test/proc"
	"github.com/spillgate/spillgate/test/sim/world"
)

// The banner, the README and scripts count ports up from the first, region by
// region.
func TestEdgesTakePortsInARow(t *testing.T) {
	rules, err := readRules("")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.Regions, cfg.Edges = 2, 2
	var c *cluster
	var port int
	for range 20 { // whoever else runs here may have one of the four
		cfg.Listen = proc.FreeAddr(t)
		if _, port, err = splitListen(cfg.Listen); err != nil {
			t.Fatal(err)
		}
		if c, err = newCluster(t.Context(), cfg, rules, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "is in use") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	for _, r := range c.regions {
		for i, s := range r.edges {
			if name, url := fmt.Sprint(r.name, "-", i+1), "http://127.0.0.1:"+strconv.Itoa(port); s.name != name || s.url != url {
				t.Errorf("%s at %s, want %s at %s", s.name, s.url, name, url)
			}
			port++
		}
	}
}

func TestPortsThatNobodyChose(t *testing.T) {
	c := &cluster{cfg: Config{Listen: "127.0.0.1:0", Regions: 1, Edges: 1}}
	for nth := range 3 {
		ln, err := c.listen(nth)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		if port := ln.Addr().(*net.TCPAddr).Port; port < 1024 {
			t.Errorf("edge %d has port %d, want one that was free", nth, port)
		}
	}
}

func TestURLCanBePasted(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:18080": "http://127.0.0.1:18080", "[::]:18080": "http://127.0.0.1:18080", "0.0.0.0:1": "http://127.0.0.1:1",
		"[::1]:2": "http://[::1]:2", "192.0.2.1:3": "http://192.0.2.1:3",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := urlOf(tcp); got != want {
			t.Errorf("urlOf(%s) = %s, want %s", addr, got, want)
		}
	}
}

// Messages between regions take their time, and a cut swallows those of its
// region; edges are next door.
func TestLinkBetweenRegions(t *testing.T) {
	c := &cluster{cfg: Config{Delay: 80 * time.Millisecond, Cuts: []Cut{{"eu", 0, time.Hour}}}, begun: time.Now()}
	across, cut := membus.Link{Delay: 80 * time.Millisecond}, membus.Link{Delay: 80 * time.Millisecond, Cut: true}
	for _, tt := range []struct {
		from, subject string
		want          membus.Link
	}{
		{"ap", deltasync.RegionSubject("us", 0, "ap"), across},
		{"eu", deltasync.RegionSubject("us", 0, "eu"), cut},
		{"us", deltasync.RegionSubject("eu", 0, "us"), cut},
		{"ap", deltasync.AuditSubject("us", 0), across},
		{"eu", deltasync.AuditSubject("us", 0), cut},
		{"us", deltasync.AuditSubject("eu", 0), cut},
		{"eu", deltasync.EdgeSubject("eu", 0, "demo", "eu-1"), membus.Link{}},
		{"eu", deltasync.HotSubject("eu", 0), membus.Link{}},
		{"eu", deltasync.LiveSubject("eu"), membus.Link{}},
	} {
		if got := c.linkOf(tt.from)(tt.subject); got != tt.want {
			t.Errorf("linkOf(%s)(%s) = %+v, want %+v", tt.from, tt.subject, got, tt.want)
		}
	}
	c.begun = time.Now().Add(-2 * time.Hour)
	if got := c.linkOf("us")(deltasync.RegionSubject("eu", 0, "us")); got.Cut {
		t.Error("the cut does not end")
	}
}

// The worst window may be one of the whole, or one of a region.
func TestOverLooksAtEveryLog(t *testing.T) {
	rules, err := readRules("")
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.compile()
	if err != nil {
		t.Fatal(err)
	}
	rate := set.Rules()[0].Rates[0]
	now := time.Now()
	log := func(ratio float64) *world.Oracle {
		o := world.NewOracle()
		o.Admit(now, rate, 0, uint64(ratio*float64(rate.Limit)))
		return o
	}
	for _, tc := range []struct{ global, eu, us, want float64 }{{2, 1, 1, 1}, {1, 1, 3, 2}, {1, 3, 1, 2}, {1, 1, 1, 0}} {
		m := newMeter(&cluster{begun: now, global: log(tc.global), regions: []*region{{name: "eu", oracle: log(tc.eu)}, {name: "us", oracle: log(tc.us)}}})
		if got := m.over(); got != tc.want {
			t.Errorf("over of %+v = %v, want %v", tc, got, tc.want)
		}
		if got := m.sample(now).Over; got != tc.want {
			t.Errorf("over in the sample of %+v = %v, want %v", tc, got, tc.want)
		}
		if got := m.summary(now).Over; got != tc.want {
			t.Errorf("over in the summary of %+v = %v, want %v", tc, got, tc.want)
		}
	}
}
