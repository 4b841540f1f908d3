package configs

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var inTicks = regexp.MustCompile("`([^`]+)`")

// The YAML in the tables of README.md here is read as it stands there.
func TestTablesOfTheReadme(t *testing.T) {
	tables, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	rates, rules := 0, 0
	for _, row := range strings.Split(string(tables), "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		rate, rule := "limit: 10, per: 1m", ""
		for _, m := range inTicks.FindAllStringSubmatch(cells[2], -1) {
			switch yaml := m[1]; {
			case strings.HasPrefix(yaml, "{"):
				rate = strings.Trim(yaml, "{}")
				rates++
			case len(cells) == 5 && strings.Contains(yaml, ": "): // more words of the rate
				rate += ", " + yaml
			case strings.Contains(yaml, ": "):
				rule += "  " + yaml + "\n"
				rules++
			}
		}
		file := fmt.Sprintf("schema: spillgate/v1\nnamespace: readme\nrules:\n- name: RULE\n  group: other\n  rates: [{limit: 100, per: 1m}]\n- name: this\n  rates: [{%s}]\n%s", rate, rule)
		if _, err := ParseRules("README.md", []byte(file)); err != nil {
			t.Errorf("%s\n%v", row, err)
		}
	}
	if rates < 9 || rules < 9 {
		t.Errorf("%d rates and %d rules in the tables, want at least 9 of each: are they read?", rates, rules)
	}
}
