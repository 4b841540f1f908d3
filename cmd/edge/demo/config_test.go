package demo

import (
	"strings"
	"testing"
	"time"
)

func TestParseCut(t *testing.T) {
	for _, tc := range []struct {
		text string
		want Cut
		err  string
	}{
		{"eu@5s+5s", Cut{"eu", 5 * time.Second, 5 * time.Second}, ""},
		{"us@0s+1m30s", Cut{"us", 0, 90 * time.Second}, ""},
		{"", Cut{}, "no region"},
		{"eu", Cut{}, "no region"},
		{"@5s+5s", Cut{}, "no region"},
		{"eu@5s", Cut{}, "no length"},
		{"eu@5+5s", Cut{}, `"5" is not a time`},
		{"eu@-5s+5s", Cut{}, "is not a time"},
		{"eu@5s+0s", Cut{}, "is not a length"},
		{"eu@5s+5s+5s", Cut{}, "is not a length"},
	} {
		got, err := ParseCut(tc.text)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("ParseCut(%q) = %v, %v; want %v and an error with %q", tc.text, got, err, tc.want, tc.err)
		}
		if err != nil {
			continue
		}
		if again, err := ParseCut(got.String()); again != got || err != nil {
			t.Errorf("%v reads as %v, %v", got, again, err)
		}
	}
}

func TestCutHolds(t *testing.T) {
	c := Cut{"eu", 2 * time.Second, time.Second}
	for at, want := range map[time.Duration]bool{
		0: false, 2*time.Second - 1: false, 2 * time.Second: true, 3*time.Second - 1: true, 3 * time.Second: false,
	} {
		if c.holds(at) != want {
			t.Errorf("%v holds at %v: %t", c, at, !want)
		}
	}
	var list CutList
	if err := list.Set("eu@1s+1s"); err != nil {
		t.Fatal(err)
	}
	if err := list.Set("us@2s"); err == nil || list.String() != "eu@1s+1s" {
		t.Errorf("after a bad cut the list is %q, error %v", list.String(), err)
	}
}

func TestValidate(t *testing.T) {
	ok := Default()
	if err := ok.Validate(); err != nil {
		t.Fatalf("Default: %v", err)
	}
	for _, tc := range []struct {
		want  string
		wrong func(*Config)
	}{
		{"--regions 0: want 1 to 20", func(c *Config) { c.Regions = 0 }},
		{"--regions 21", func(c *Config) { c.Regions = 21 }},
		{"--edges 51: want 1 to 50", func(c *Config) { c.Edges = 51 }},
		{"--rate 0", func(c *Config) { c.Rate = 0 }},
		{"--delay -1s", func(c *Config) { c.Delay = -time.Second }},
		{"--for -1s", func(c *Config) { c.For = -time.Second }},
		{"--no-traffic, --log x", func(c *Config) { c.NoTraffic, c.LogFile = true, "x" }},
		{`no region "sa"; there are eu, us, ap`, func(c *Config) { c.Cuts = []Cut{{"sa", 0, 1}} }},
		{"--redis-url: redis URL: the scheme", func(c *Config) { c.RedisURL = "http://127.0.0.1" }},
		{"--listen 18080", func(c *Config) { c.Listen = "18080" }},
		{"--listen :http", func(c *Config) { c.Listen = ":http" }},
		{"ports up to 65536", func(c *Config) { c.Listen = "127.0.0.1:65531" }},
	} {
		c := Default()
		tc.wrong(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
	last := Default()
	last.Listen = "127.0.0.1:65530"
	if err := last.Validate(); err != nil {
		t.Errorf("six ports up to 65535: %v", err)
	}
	many := Config{Regions: 30, Edges: 0, Listen: "x"}
	if err := many.Validate(); strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not all mistakes are told at once: %v", err)
	}
}
