package configs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// told is what is wrong with a file, or strange in it: "E007@3:5 W241@7:1"; "" where all
// is well.
func told(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "domain.yaml")
	writeFile(t, file, text)
	_, all, err := FormatEnvoy.Check(file)
	if mistakes := (*RulesError)(nil); errors.As(err, &mistakes) {
		all = mistakes.Mistakes
	} else if err != nil {
		t.Fatal(err)
	}
	words := make([]string, len(all))
	for i, m := range all {
		words[i] = fmt.Sprintf("%s@%d:%d", m.Code, m.Line, m.Column)
	}
	return strings.Join(words, " ")
}

// TestEnvoyFiles: what the reference takes and what it refuses, with where it is wrong.
func TestEnvoyFiles(t *testing.T) {
	const limited = "domain: d\ndescriptors:\n- key: a\n  rate_limit: "
	for text, want := range map[string]string{
		"domain: d":                  "",
		"domain: d\ndescriptors:":    "",
		"domain: 7\ndescriptors: []": "",
		"":                           "E004@0:0",
		"# nothing":                  "E004@0:0",
		"- domain: d":                "E009@1:1",
		"domain: ":                   "E014@1:1",
		"domain: ''":                 "E014@1:1",
		"domain: 1.5":                "E241@1:9",
		"domain: [d]":                "E009@1:9",
		"domains: d":                 "E007@1:1",
		"domain: d\n---\ndomain: d":  "W240@3:1",
		"domain: d\nunit: second":    "W241@2:1",
		"domain: d\nunit: 2.5":       "E241@2:7",
		"domain: d\nunit: {per: 1}":  "E007@2:8",
		"domain: d\nunit: [second]":  "E009@2:8",

		"{\n\t\"domain\": \"d\",\n\t\"descriptors\": [\n\t\t{\"key\": \"a\"}\n\t]\n}": "",
		"domain: d\ndescriptors: [\n\t{key: a},\n \t# again\n\t\n\t{key: a}]":         "E242@6:2",
		"domain: d\ndescriptors: [\n\t{key: a}]\n\tunit: day":                         "E006@4:1",
		"domain: d\ndescriptors: # [\n\t- key: '['":                                   "E006@3:1",
		"domain: \"d\n\te\"":  "E006@2:1",
		"[\n---\n\tdomain: d": "E006@3:1",

		"domain: d\ndescriptors: {key: a}":                                                       "E009@2:14",
		"domain: d\ndescriptors: [a]":                                                            "E009@2:15",
		"domain: d\ndescriptors: [{value: a}]":                                                   "E014@2:15",
		"domain: d\ndescriptors: [{key: }]":                                                      "E014@2:15",
		"domain: d\ndescriptors: [{key: a, colour: red}]":                                        "E007@2:24",
		"domain: d\ndescriptors: [{key: a, unit: day}]":                                          "W241@2:24",
		"domain: d\ndescriptors: [{key: a}, {key: b}, {key: a}]":                                 "E242@2:35",
		"domain: d\ndescriptors: [{key: a_b, value: c}, {key: a, value: b_c}]":                   "E242@2:37",
		"domain: d\ndescriptors: [{key: a, value: b}, {key: a, value: 1}, {key: a}]":             "",
		"domain: d\ndescriptors: [{key: a, value: yes}, {key: true}]":                            "",
		"domain: d\ndescriptors: [{key: a, value: 1e3}]":                                         "E241@2:31",
		"domain: d\ndescriptors: [{key: a, value: '1e3'}]":                                       "",
		"domain: d\ndescriptors: [{key: a, value: 99999999999999999999}]":                        "E241@2:31",
		"domain: d\ndescriptors: [{key: a, value: 10.0.0.1}]":                                    "",
		"domain: d\ndescriptors: [{key: a, value: 2026-01-01}]":                                  "",
		"domain: d\ndescriptors: [{key: a, share_threshold: true}]":                              "E243@2:41",
		"domain: d\ndescriptors: [{key: a, value: 'b*c', share_threshold: yes}]":                 "",
		"domain: d\ndescriptors: [{key: a, shadow_mode: 'true'}]":                                "E009@2:37",
		"domain: d\ndescriptors: [{key: a, shadow_mode: 1}]":                                     "E009@2:37",
		"domain: d\ndescriptors: [{key: a, quota_mode: on, detailed_metric: off}]":               "",
		"domain: d\ndescriptors: [{key: a, metadata: {any: [thing, 1.5, {at: all}]}}]":           "",
		"domain: d\ndescriptors: [{key: a, metadata: 5}]":                                        "E009@2:34",
		"domain: d\ndescriptors: [{key: a, descriptors: [{key: a, descriptors: [{value: b}]}]}]": "E014@2:61",

		limited:       "",
		limited + "5": "E009@4:15",
		limited + "{unit: minute, requests_per_unit: 5}":              "",
		limited + "{unit: WEEK, requests_per_unit: 0}":                "",
		limited + "{unit: minute}":                                    "W242@4:15",
		limited + "{requests_per_unit: 5}":                            "E014@4:15",
		limited + "{unit: unknown, requests_per_unit: 5}":             "E246@4:22",
		limited + "{unit: minutes, requests_per_unit: 5}":             "E246@4:22",
		limited + "{unit: day, requests_per_unit: -1}":                "E013@4:46",
		limited + "{unit: day, requests_per_unit: 5.0}":               "E241@4:46",
		limited + "{unit: day, requests_per_unit: '5'}":               "E009@4:46",
		limited + "{unit: day, requests_per_unit: many}":              "E009@4:46",
		limited + "{unit: day, requests_per_unit: 0x10}":              "",
		limited + "{unit: day, requests_per_unit: 1_000}":             "",
		limited + "{unit: day, requests_per_unit: 4294967295}":        "",
		limited + "{unit: day, requests_per_unit: 4294967296}":        "E013@4:46",
		limited + "{unlimited: true}":                                 "",
		limited + "{unlimited: true, unit: never}":                    "",
		limited + "{unlimited: true, unit: day}":                      "E245@4:39",
		limited + "{unlimited: true, replaces: [{name: b}]}":          "W243@4:44",
		limited + "{unlimited: true, name: b, replaces: [{name: b}]}": "E244@4:53",
		limited + "{unlimited: true, replaces: [{}]}":                 "E014@4:44",
		limited + "{unlimited: true, replaces: b}":                    "E009@4:43",
		limited + "{unlimited: true, key: b}":                         "W241@4:33",
	} {
		if got := told(t, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What the reference takes, and we do not: each may be meant otherwise than it is read.
func TestEnvoyFilesThatAreRefusedBesides(t *testing.T) {
	for text, want := range map[string]string{
		"domain: d\ndomain: e": "E005@2:1", // the last one would count
		"domain: !!str d":      "E003@1:9",
		"domain: d\ndescriptors:\n- &a {key: a}\n- {<<: *a, value: b}": "E003@4:4",
	} {
		if got := told(t, text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestEnvoyFilesAreReadWhole(t *testing.T) {
	docs, mistakes := parseEnvoyFile(rulesFile{name: "d.yaml", text: []byte(`
domain: shop
descriptors:
- key: user
  value: "v*"
  share_threshold: true
  shadow_mode: true
  metadata: {plan: gold, seats: 5, tags: [a, yes]}
  descriptors:
  - {key: path, quota_mode: true, rate_limit: {unlimited: true, replaces: [{name: most}]}}
  rate_limit: {name: most, unit: Month, requests_per_unit: 30}
`)})
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	want := limit.Document{Namespace: "shop", Descriptors: &limit.DescriptorSpec{Below: []limit.DescriptorSpec{{
		Key: "user", Value: "v*", Share: true,
		Limit: &limit.DescriptorLimit{
			Name: "most", Requests: 30, Unit: 30 * 24 * time.Hour, Shadow: true,
			Metadata: map[string]any{"plan": "gold", "seats": 5.0, "tags": []any{"a", true}},
		},
		Below: []limit.DescriptorSpec{{Key: "path", Limit: &limit.DescriptorLimit{Unlimited: true, Quota: true, Replaces: []string{"most"}}}},
	}}}}
	if !reflect.DeepEqual(docs[0].doc, want) {
		t.Errorf("read %+v\nwant %+v", docs[0].doc.Descriptors.Below, want.Descriptors.Below)
	}
}

// Several files are one set, of which each has its domain.
func TestEnvoyDirectories(t *testing.T) {
	dir := t.TempDir()
	const file = "domain: %s\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n"
	writeFile(t, filepath.Join(dir, "a.yaml"), fmt.Sprintf(file, "one"))
	writeFile(t, filepath.Join(dir, "b.yaml"), fmt.Sprintf(file, "two, with a space"))
	set, err := FormatEnvoy.Load(dir)
	if err != nil || fmt.Sprint(set.Names()) != "[one two, with a space]" {
		t.Fatalf("%v, %v; want two domains", set.Names(), err)
	}
	writeFile(t, filepath.Join(dir, "c.yaml"), fmt.Sprintf(file, "one"))
	_, err = FormatEnvoy.Load(dir)
	if m := mistakesOf(t, err); len(m) != 1 || m[0].Code != "E102" || filepath.Base(m[0].File) != "c.yaml" || m[0].Line != 1 || m[0].Column != 9 {
		t.Errorf("a domain of two files: %v, want it said of the second", m)
	}
}

// A file of the reference's that is read as ours, and the other way round, is told so.
func TestFormatsAreToldApart(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "theirs.yaml"), "domain: d\ndescriptors: []\n")
	if _, err := LoadRules(dir); err == nil || !strings.Contains(err.Error(), "rules.format: envoy") {
		t.Errorf("theirs as ours: %v, want it to name rules.format: envoy", err)
	}
	if _, err := FormatEnvoy.Load("rules.yaml"); err == nil || !strings.Contains(err.Error(), "rules.format: spillgate") {
		t.Errorf("ours as theirs: %v, want it to name rules.format: spillgate", err)
	}
}

func TestWatcherFollowsEnvoyFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "d.yaml")
	write := func(requests int) {
		text := fmt.Sprintf("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: %d}}]\nunit: day\n", requests)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(5)
	w, err := FormatEnvoy.Watch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(w.Warnings()); !strings.Contains(got, "d.yaml:3:1: W241 ") {
		t.Errorf("warned of %s, want the unit that has no meaning there", got)
	}
	write(6)
	limits, done := make(chan uint64, 1), make(chan struct{})
	go func() { // the end of the test's context ends it, and done is awaited
		defer close(done)
		w.Run(t.Context(), func(set *limit.Set, warnings []Mistake) error {
			if len(warnings) != 1 || warnings[0].Code != "W241" {
				t.Errorf("warned of %v after the change, want W241 again", warnings)
			}
			limits <- set.Rules()[0].Rates[0].Limit
			return nil
		}, func(err error) { t.Error(err) })
	}()
	if got := <-limits; got != 6 {
		t.Errorf("after the change %d, want 6", got)
	}
	t.Cleanup(func() { <-done })
}

func FuzzParseEnvoy(f *testing.F) {
	f.Add([]byte("domain: d\ndescriptors:\n- {key: a, value: b*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: c}]}}\n"))
	f.Add([]byte("domain: d\ndescriptors:\n- key: a\n  metadata: {b: [1, 2.5, on]}\n  descriptors: [{key: a, rate_limit: {unlimited: yes}}]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, _, err := FormatEnvoy.checkFiles([]rulesFile{{name: "fuzz.yaml", text: text}})
		checkParsed(t, text, set, err)
	})
}

// Tabs within brackets are as so many spaces.
func TestEnvoyTabs(t *testing.T) {
	const tabs = "{\n\t\"domain\": \"d\",\n\t\"descriptors\": [\n\t\t{\"key\": \"a\", \"value\": \"of\n\t\ttwo\",\n \t\"rate_limit\": {\n\t\"unit\": \"day\", \"requests_per_unit\":\t5}}\n\t]\n}\n"
	var docs []limit.Document
	for _, text := range []string{tabs, strings.ReplaceAll(tabs, "\t", " ")} {
		files, mistakes := parseEnvoyFile(rulesFile{name: "d.yaml", text: []byte(text)})
		if len(files) != 1 || len(mistakes) > 0 {
			t.Fatalf("%q: %v", text, mistakes)
		}
		docs = append(docs, files[0].doc)
	}
	if d := docs[0].Descriptors.Below; !reflect.DeepEqual(docs[0], docs[1]) || len(d) != 1 || d[0].Value != "of two" || d[0].Limit == nil || d[0].Limit.Requests != 5 {
		t.Errorf("%+v, want %+v", docs[0], docs[1])
	}
}
