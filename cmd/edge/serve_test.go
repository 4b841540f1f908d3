package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/httpapi/limitertest"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/edge/proxy"
)

// An edge that starts cut off tells its operator what that means where limits are to be
// shared: once, and not where it is told how many others there are.
func TestToldWhoStartsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		expects     bool
		consistency string
		scope       string
		warns       int
	}{
		"adaptive": {false, "adaptive", "", 1}, "expected": {true, "adaptive", "", 0},
		"loose": {false, "loose", "", 0}, "its own": {false, "adaptive", "edge", 0},
	} {
		t.Run(name, func(t *testing.T) {
			set, problems := limit.Compile(limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{{
				Name: "r", Rates: []limit.RateSpec{{Limit: 100, Per: time.Minute, Consistency: c.consistency, Scope: c.scope}},
			}}})
			if set == nil {
				t.Fatal(problems)
			}
			var text bytes.Buffer
			synctest.Test(t, func(t *testing.T) {
				node, err := edge.New(edge.Config{Region: "eu", Pop: "p", Name: "a", Secret: []byte("0123456789abcdef")})
				if err != nil {
					t.Fatal(err)
				}
				node.SetRules(set)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if err := tellDegraded(ctx, node, c.expects, slog.New(slog.NewTextHandler(&text, nil))); err != nil {
					t.Error(err)
				}
			})
			if n := strings.Count(text.String(), "cluster.regions"); n != c.warns || strings.Count(text.String(), "degraded: ") != 1 {
				t.Errorf("%d warnings, want %d:\n%s", n, c.warns, text.String())
			}
		})
	}
}

// Rules that would have all pass that comes to the reverse proxy are not put in force, as an
// edge does not start with them; and who asks without a namespace is told that he is limited no
// more.
func TestReloadLimitsOn(t *testing.T) {
	compile := func(namespaces ...string) *limit.Set {
		var docs []limit.Document
		for _, name := range namespaces {
			docs = append(docs, limit.Document{Namespace: name, Rules: []limit.RuleSpec{{Name: "r", Rates: []limit.RateSpec{{Limit: 1, Per: time.Hour, Scope: "edge"}}}}})
		}
		set, problems := limit.Compile(docs...)
		if set == nil {
			t.Fatal(problems)
		}
		return set
	}
	for _, c := range []struct {
		fallback string // default_namespace
		proxies  bool
		then     []string
		refused  bool
		warns    int
	}{
		{"", true, []string{"shop", "other"}, true, 0},
		{"", false, []string{"shop", "other"}, false, 1},
		{"", true, []string{"other"}, false, 0},
		{"shop", true, []string{"shop", "other"}, false, 0},
		{"shop", true, []string{"other"}, true, 0},
		{"shop", false, []string{"other"}, false, 1},
	} {
		first := compile("shop")
		node := limitertest.Node(t)
		node.SetRules(first)
		api, err := httpapi.New(node, httpapi.Config{DefaultNamespace: c.fallback})
		if err != nil {
			t.Fatal(err)
		}
		var upstream *proxy.Proxy
		if c.proxies {
			if upstream, err = proxy.New(api, node, proxy.Config{Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}}); err != nil {
				t.Fatal(err)
			}
		}
		var text bytes.Buffer
		err = takeOver(node, api, upstream, compile(c.then...), slog.New(slog.NewTextHandler(&text, nil)))
		if refused := err != nil; refused != c.refused || refused != (node.Rules() == first) || strings.Count(text.String(), "default_namespace") != c.warns {
			t.Errorf("%+v: %v, the first rules stand: %v, and\n%s", c, err, node.Rules() == first, text.String())
		}
	}
}
