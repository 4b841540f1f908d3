package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/configs"
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
		first := compiled(t, "shop")
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
		err = takeOver(node, api, upstream, compiled(t, c.then...), slog.New(slog.NewTextHandler(&text, nil)))
		if refused := err != nil; refused != c.refused || refused != (node.Rules() == first) || strings.Count(text.String(), "default_namespace") != c.warns {
			t.Errorf("%+v: %v, the first rules stand: %v, and\n%s", c, err, node.Rules() == first, text.String())
		}
	}
}

// compiled is rules of namespaces, a rule each.
func compiled(t *testing.T, namespaces ...string) *limit.Set {
	t.Helper()
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

// A default namespace that is misspelt would leave whoever asks without one unlimited: it is told when the edge
// starts, with those that there are, or when its first rules come.
func TestDefaultNamespaceWithoutRulesIsTold(t *testing.T) {
	cleanEnv(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, warns := range map[string]int{"": 0, "shop": 0, "shpo": 1} {
		told := func(text string) {
			t.Helper()
			if n := strings.Count(text, "default_namespace"); n != warns || strings.Count(text, "there are rules for: shop") != warns {
				t.Errorf("default_namespace: %q: want %d warnings, with the namespaces that there are:\n%s", name, warns, text)
			}
		}
		flags := newServeCommand().Flags()
		if err := flags.Parse([]string{"--region", "eu", "--secret", "0123456789abcdef", "--rules-path", goodRules, "--nats-urls", "nats://127.0.0.1:1",
			"--listen", taken.Addr().String(), "--default-namespace", name}); err != nil {
			t.Fatal(err)
		}
		settings, err := configs.LoadEdge(flags)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := serve(t.Context(), settings, slog.New(slog.NewTextHandler(&text, nil))); !errors.Is(err, syscall.EADDRINUSE) { // after all that is told
			t.Fatal(err)
		}
		told(text.String())

		text.Reset()
		node, err := edge.New(edge.Config{Region: "eu", Pop: "p", Name: "a", Secret: []byte("0123456789abcdef")})
		if err != nil {
			t.Fatal(err)
		}
		api, err := httpapi.New(node, httpapi.Config{DefaultNamespace: name})
		if err != nil {
			t.Fatal(err)
		}
		if err := takeOver(node, api, nil, compiled(t, "shop"), slog.New(slog.NewTextHandler(&text, nil))); err != nil {
			t.Fatal(err)
		}
		told(text.String())
	}
}
