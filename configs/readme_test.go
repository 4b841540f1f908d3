package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README's rules are the first that anybody tries: no mistake, no warning.
func TestRulesOfTheReadmeHaveNoWarnings(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const open, end = "```yaml\n", "```\n"
	_, rest, found := strings.Cut(string(text), open)
	rules, _, closed := strings.Cut(rest, end)
	if !found || !closed || !strings.Contains(rules, "rules:") {
		t.Fatal("the README has no rules in its first block of YAML")
	}
	file := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, warnings, err := CheckRules(file); err != nil || len(warnings) != 0 {
		t.Errorf("warnings %v, error %v", warnings, err)
	}
}
