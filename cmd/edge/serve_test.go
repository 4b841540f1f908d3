package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillgate/spillgate/edge"
	"github.com/spillgate/spillgate/edge/limit"
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
