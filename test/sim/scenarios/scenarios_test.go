package scenarios

import (
	"strings"
	"testing"
	"time"
)

// The scenarios that accuracy.md measures are all there.
func TestScenarios(t *testing.T) {
	list, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"flash-all", "flash-one", "steady-2x", "under-50", "under-80", "move", "skew", "on-off", "burst-home", "burst-random", "partition", "restart", "chaos", "zipf", "zipf-100k"}
	seen := map[string]bool{}
	for _, s := range list {
		if seen[s.Name] {
			t.Errorf("%q stands there twice", s.Name)
		}
		seen[s.Name] = true
	}
	for _, name := range want {
		if !seen[name] {
			t.Errorf("%q is missing", name)
		}
	}
	if _, err := Named("flash-mob"); err == nil || !strings.Contains(err.Error(), "flash-mob") {
		t.Errorf("an unknown name: %v", err)
	}
}

func TestSpan(t *testing.T) {
	s := Span{Windows: 1.5, Least: 3 * time.Second}
	if got := s.Of(time.Second); got != 3*time.Second {
		t.Errorf("of a second: %v, want 3s", got)
	}
	if got := s.Of(time.Minute); got != 90*time.Second {
		t.Errorf("of a minute: %v, want 1m30s", got)
	}
}

func TestBadScenarios(t *testing.T) {
	for text, want := range map[string]string{
		"- {about: x, lasts: {windows: 1}, demand: [{rate: 1}]}":                                         "a name",
		"- {name: a, about: x, demand: [{rate: 1}]}":                                                     "lasts is missing",
		"- {name: a, about: x, lasts: {windows: 1}}":                                                     "nothing is asked",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rate: 1, where: here}]}":                   `"here" is none of`,
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rate: 1, burst: 1}]}":                      "one of them",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rate: 1, where: moving}]}":                 "every goes with",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{burst: 1, every: {windows: 2}}]}":          "within what time",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rate: 1, where: home}]}":                   "is for bursts",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rate: 1}], faults: [{cut: 1}]}":            "for some time",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rat: 1}]}":                                 "rat",
		"- {name: a, about: x, lasts: {windows: 1}, demand: [{rate: 1}], faults: [{for: {windows: 1}}]}": "a cut or a restart",
	} {
		if _, err := parse([]byte("scenarios:\n" + text + "\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", text, err, want)
		}
	}
}
