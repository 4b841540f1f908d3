package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What edge validate warns of, edge serve logs, and no more than a screen of it.
func TestWarningsOfRulesAreLogged(t *testing.T) {
	for rules, want := range map[int]int{1: 0, 2: 1, 40: 21} {
		doc := limit.Document{Namespace: "acme"}
		for i := range rules {
			doc.Rules = append(doc.Rules, limit.RuleSpec{Name: fmt.Sprint("r", i), Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}})
		}
		set, problems := limit.Compile(doc)
		if set == nil {
			t.Fatal(problems)
		}
		var text bytes.Buffer
		tellWarnings(set, slog.New(slog.NewTextHandler(&text, nil)))
		if got := strings.Count(text.String(), "level=WARN"); got != want {
			t.Errorf("%d rules of one priority: %d lines, want %d\n%s", rules, got, want, text.String())
		}
		if want > 0 && (!strings.Contains(text.String(), "code=W205 path=rules[1].priority") || !strings.Contains(text.String(), "never applies")) {
			t.Errorf("the warning is not told: %s", text.String())
		}
		if rules == 40 && !strings.Contains(text.String(), "warnings=39") {
			t.Errorf("the rest is not counted: %s", text.String())
		}
	}
}
