package adminapi

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
)

// openAPIDoc is what the tests read of the document.
type openAPIDoc struct {
	Paths map[string]map[string]struct {
		Role       string                      `json:"x-role"`
		Parameters []struct{ Name, In string } `json:"parameters"`
		Responses  map[string]struct {
			Content map[string]struct{ Schema schema } `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct{ Schemas map[string]schema }
}

// schema is as much of JSON Schema as the document uses.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Required             []string
	Properties           map[string]schema
	AdditionalProperties *bool
	Items                *schema
}

func readOpenAPI(t testing.TB) *openAPIDoc {
	t.Helper()
	var doc openAPIDoc
	if err := json.Unmarshal(openAPIDocument, &doc); err != nil {
		t.Fatal(err)
	}
	return &doc
}

// check returns what of a value is not as a schema says.
func (d *openAPIDoc) check(at string, s schema, v any) (wrong []string) {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		known, there := d.Components.Schemas[name]
		if !there {
			return []string{at + ": no schema " + name}
		}
		return d.check(at, known, v)
	}
	kind := map[string]bool{}
	switch v := v.(type) {
	case string:
		kind["string"] = true
	case bool:
		kind["boolean"] = true
	case json.Number:
		_, err := strconv.ParseInt(string(v), 10, 64)
		kind["number"], kind["integer"] = true, err == nil
	case []any:
		kind["array"] = true
		for i, item := range v {
			if s.Items != nil {
				wrong = append(wrong, d.check(fmt.Sprintf("%s[%d]", at, i), *s.Items, item)...)
			}
		}
	case map[string]any:
		kind["object"] = true
		for _, name := range s.Required {
			if _, there := v[name]; !there {
				wrong = append(wrong, at+": lacks "+name)
			}
		}
		for name, value := range v {
			property, known := s.Properties[name]
			switch {
			case known:
				wrong = append(wrong, d.check(at+"."+name, property, value)...)
			case s.AdditionalProperties != nil && !*s.AdditionalProperties:
				wrong = append(wrong, at+": has "+name)
			}
		}
	}
	if s.Type != "" && !kind[s.Type] {
		wrong = append(wrong, fmt.Sprintf("%s: %v, want %s", at, v, s.Type))
	}
	return wrong
}

// holds fails the test where an answer is not one that the document tells of.
func (d *openAPIDoc) holds(t testing.TB, pattern string, w *httptest.ResponseRecorder) {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	response, told := d.Paths[path][strings.ToLower(method)].Responses[strconv.Itoa(w.Code)]
	if !told {
		t.Errorf("%s answers %d %s, of which OpenAPI does not tell", pattern, w.Code, w.Body)
		return
	}
	kind, _, err := mime.ParseMediaType(w.Header().Get("Content-Type"))
	content, known := response.Content[kind]
	if err != nil || !known {
		t.Errorf("%s answers %d with %q, of which OpenAPI does not tell", pattern, w.Code, w.Header().Get("Content-Type"))
		return
	}
	if !strings.HasSuffix(kind, "json") {
		return
	}
	var v any
	in := json.NewDecoder(strings.NewReader(w.Body.String()))
	in.UseNumber()
	if err := in.Decode(&v); err != nil {
		t.Errorf("%s answers %s: %v", pattern, w.Body, err)
		return
	}
	for _, wrong := range d.check("", content.Schema, v) {
		t.Errorf("%s answers %d %s: %s", pattern, w.Code, w.Body, wrong)
	}
}

// TestOpenAPITellsOfAllThatIsServed: each route with its role and parameters, and nothing more.
func TestOpenAPITellsOfAllThatIsServed(t *testing.T) {
	doc := readOpenAPI(t)
	cfg := Config{Rules: &Rulebook{}}
	served := map[string]string{}
	for _, r := range cfg.routes() {
		query := slices.Clone(r.query)
		slices.Sort(query)
		served[r.pattern] = string(r.need) + " " + strings.Join(query, " ")
	}
	told := map[string]string{}
	for path, operations := range doc.Paths {
		for method, o := range operations {
			var query []string
			for _, p := range o.Parameters {
				if p.In == "query" {
					query = append(query, p.Name)
				}
			}
			slices.Sort(query)
			told[strings.ToUpper(method)+" "+path] = o.Role + " " + strings.Join(query, " ")
			for _, p := range o.Parameters {
				if p.In == "path" && !strings.Contains(path, "{"+p.Name+"}") {
					t.Errorf("%s has no %s", path, p.Name)
				}
			}
		}
	}
	if !reflect.DeepEqual(served, told) {
		t.Errorf("served are %v,\ntold %v", served, told)
	}
}

// TestOpenAPIHasTheFields: its objects have the fields that ours have, and those are required that are
// always there.
func TestOpenAPIHasTheFields(t *testing.T) {
	doc := readOpenAPI(t)
	for name, of := range map[string]any{
		"VersionInfo": VersionInfo{}, "Document": Document{}, "Changed": Changed{}, "RuleInfo": ruleInfo{}, "Mistake": Mistake{}, "Problem": Problem{}, "AuditEntry": natsaudit.Entry{},
		"Tells": Tells{}, "Until": Until{}, "RegionTells": RegionTells{}, "RuleTells": RuleTells{}, "RuleDecisions": regional.RuleDecisions{}, "Counted": regional.Counted{}, "Decisions": deltasync.Decisions{},
		"TenantInfo": TenantInfo{}, "TenantChange": TenantChange{}, "TenantsChange": TenantsChange{}, "TenantAsk": TenantAsk{},
		"ExceptionInfo": ExceptionInfo{}, "ExceptionChange": ExceptionChange{}, "KeyInfo": KeyInfo{}, "KeyRate": KeyRate{}, "KeySpends": KeySpends{}, "TopKey": TopKey{}, "Capacity": Capacity{},
	} {
		var all, always []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			if f.Anonymous {
				continue
			}
			tag, omit, _ := strings.Cut(f.Tag.Get("json"), ",")
			all = append(all, tag)
			if omit == "" {
				always = append(always, tag)
			}
		}
		s := doc.Components.Schemas[name]
		var told []string
		for property := range s.Properties {
			told = append(told, property)
		}
		for _, list := range [][]string{all, always, told, s.Required} {
			slices.Sort(list)
		}
		if !slices.Equal(all, told) || !slices.Equal(always, s.Required) {
			t.Errorf("%s has %q, of which %q always; OpenAPI tells of %q and %q", name, all, always, told, s.Required)
		}
	}
}
