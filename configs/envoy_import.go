package configs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/edge/limit"
)

// ImportEnvoy writes rules of our own that say what files of envoyproxy/ratelimit say, a
// document a domain. Of what has no equal there it says so, entry by entry: by codes that
// begin with E what is left out, by those with W what is written and differs.
func ImportEnvoy(paths ...string) (text []byte, notes []Mistake, err error) {
	files, err := readRules(paths)
	if err != nil {
		return nil, nil, err
	}
	docs, mistakes := FormatEnvoy.parseFiles(files)
	if _, err := compile(docs, mistakes); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	for i := range docs {
		w := &rulesWriter{reader: docs[i].reader, domain: docs[i].doc.Namespace, taken: map[string]bool{}, keys: map[string]bool{}}
		written := w.document(docs[i].doc.Descriptors)
		if out.Len() > 0 && len(written) > 0 {
			out.WriteString("---\n")
		}
		out.Write(written)
		notes = append(append(notes, docs[i].reader.warnings...), w.notes...)
	}
	return out.Bytes(), inOrder(notes), nil
}

// rulesWriter writes the rules of one domain.
type rulesWriter struct {
	reader *reader
	domain string
	notes  []Mistake
	rules  []writtenRule
	taken  map[string]bool // names
	keys   map[string]bool // all that the tree has
}

// writtenRule is a rule but for its priority, and the descriptor that it comes from.
type writtenRule struct{ from, name, text string }

func (w *rulesWriter) note(path, code, hint, format string, args ...any) {
	at := w.reader.placeOf(path)
	w.notes = append(w.notes, Mistake{
		File: w.reader.src.name, Line: at.line, Column: at.column, Code: code, Path: path,
		Detail: fmt.Sprintf(format, args...), Hint: hint, Excerpt: w.reader.src.excerpt(at),
	})
}

var (
	plainName      = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	plainAttribute = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	oddLetters     = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// document is the whole document, "" where nothing is left to write.
func (w *rulesWriter) document(root *limit.DescriptorSpec) []byte {
	namespace := w.domain
	if !plainName.MatchString(namespace) {
		namespace = strings.Trim(oddLetters.ReplaceAllString(namespace, "-"), "-_.")
		namespace = namespace[:min(len(namespace), 63)]
		if !plainName.MatchString(namespace) {
			namespace = "domain"
		}
		w.note("domain", "W251", "domain: "+namespace+", in Envoy's filter", "%q is no name of a namespace: it becomes %s", w.domain, namespace)
	}
	if w.collect(root); len(w.keys) > mostLacks {
		w.note("descriptors", "W258", "", "%d keys: rules apply to requests that have other keys beside their own, but for those below; the reference's limits do not", len(w.keys))
	}
	w.namesOfOurs("descriptors", root.Below, map[string]bool{})
	w.level("descriptors", root.Below, nil)
	for {
		text := w.text(namespace)
		if len(w.rules) == 0 {
			w.note("", "W252", "", "nothing of the domain is left to write")
			return nil
		}
		// What our rules cannot say is refused when they are read.
		_, err := ParseRules("", text)
		bad := (*RulesError)(nil)
		if !errors.As(err, &bad) {
			return text
		}
		w.drop(bad.Mistakes)
	}
}

// drop leaves out the rules that cannot be.
func (w *rulesWriter) drop(mistakes []Mistake) {
	why := map[int]Mistake{}
	for _, m := range mistakes {
		at := 0
		if _, err := fmt.Sscanf(m.Path, "rules[%d]", &at); err != nil || at >= len(w.rules) {
			at = len(w.rules) - 1
		}
		if _, told := why[at]; !told {
			why[at] = m
		}
	}
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(why))) {
		w.note(w.rules[i].from, "E250", why[i].Hint, "has no equal: %s", why[i].Detail)
		w.rules = slices.Delete(w.rules, i, i+1)
	}
}

func (w *rulesWriter) text(namespace string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The domain %q of %s, by edge import envoy. Entries are told\n", w.domain, w.reader.src.name)
	b.WriteString("# by their keys here, not by their order.\nschema: " + RulesSchema + "\n")
	defaults := "algorithm: fixed_window, charge: each"
	if d := envoyDefaults().Descriptors; d != "" {
		defaults += ", descriptors: " + d
	}
	fmt.Fprintf(&b, "namespace: %s\ndefaults: {%s}\nrules:\n", strconv.Quote(namespace), defaults)
	for i, r := range w.rules {
		fmt.Fprintf(&b, "- name: %s\n  priority: %d\n%s", strconv.Quote(r.name), len(w.rules)-i, r.text)
	}
	return b.Bytes()
}

func (w *rulesWriter) collect(spec *limit.DescriptorSpec) {
	for i := range spec.Below {
		w.keys[spec.Below[i].Key] = true
		w.collect(&spec.Below[i])
	}
}

// remoteAddress is the key that Envoy's action of that name has. An edge has its value as
// client_ip, too (edge/rls), as our own rules know it by.
const remoteAddress = "remote_address"

// readOtherwise is what rules of ours read of those keys that are no text like others to them.
var readOtherwise = map[string]string{
	"path":      "compared and counted without its query, and with its dots and escapes resolved",
	"host":      "compared and counted without its port, and in lower case",
	"method":    "compared and counted in upper case",
	"client_ip": "an address, however it is written, and one of IPv6 is counted by its first 64 bits",
}

// namesOfOurs says where keys are names that an edge has a meaning for, and rules do
// otherwise by it than the reference: each key once.
func (w *rulesWriter) namesOfOurs(path string, specs []limit.DescriptorSpec, told map[string]bool) {
	for i := range specs {
		s, at := &specs[i], fmt.Sprintf("%s[%d]", path, i)
		switch {
		case told[s.Key]:
		case readOtherwise[s.Key] != "":
			w.note(at, "W259", "another descriptor_key in Envoy's routes, for the text as it is", "%s is %s; in the reference it is a text like others", s.Key, readOtherwise[s.Key])
		case s.Key == remoteAddress && w.keys["client_ip"]:
			w.note(at, "W260", "another descriptor_key in Envoy's routes in place of client_ip", "remote_address is client_ip, too: a request that has both meets the limits of remote_address")
		}
		told[s.Key] = true
		w.namesOfOurs(at+".descriptors", s.Below, told)
	}
}

// level writes what stands at one level, as the tree asks it: values, then stars, then
// keys alone. What a descriptor meets no limit below, it meets none elsewhere.
func (w *rulesWriter) level(path string, specs []limit.DescriptorSpec, above []*limit.DescriptorSpec) {
	rank := func(s *limit.DescriptorSpec) int {
		switch {
		case strings.Contains(s.Key+s.Value, "*"):
			return 1
		case s.Value == "":
			return 2
		}
		return 0
	}
	order := make([]int, len(specs))
	for i := range specs {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return rank(&specs[a]) - rank(&specs[b]) })
	exact := len(order) // those of values come first, and no two have the same
	if i := slices.IndexFunc(order, func(i int) bool { return rank(&specs[i]) > 0 }); i >= 0 {
		exact = i
	}
	for n, i := range order {
		s, at := &specs[i], fmt.Sprintf("%s[%d]", path, i)
		chain := append(slices.Clone(above), s)
		w.level(at+".descriptors", s.Below, chain)
		taken := w.limit(at, chain)
		var others []limit.DescriptorSpec // that would be asked next
		for _, later := range order[max(n+1, exact):] {
			if specs[later].Key == s.Key {
				others = append(others, specs[later])
			}
		}
		if len(others) > 0 && rank(s) < 2 {
			w.rest(at, chain, others, taken)
		}
	}
}

// limit writes the rule of a descriptor's limit, and says what it takes, so that no other rule does.
func (w *rulesWriter) limit(path string, chain []*limit.DescriptorSpec) (taken string) {
	s := chain[len(chain)-1]
	for _, word := range []string{"detailed_metric", "value_to_metric"} {
		if _, given := w.reader.at[join(path, word)]; given {
			w.note(join(path, word), "W253", "", "has no equal: metrics are told by rule, never by key or value")
		}
	}
	if s.Limit == nil {
		return ""
	}
	match, ok := w.match(path, chain, w.lacks(chain))
	if !ok {
		return ""
	}
	l := s.Limit
	if l.Quota {
		w.note(join(path, "quota_mode"), "W254", "mode: shadow, if it is not to deny", "has no equal: the rule denies by itself")
	}
	if len(l.Replaces) > 0 {
		w.note(join(path, "rate_limit.replaces"), "W255", "", "has no equal: the other limits count, too")
	}
	if len(l.Metadata) > 0 {
		w.note(join(path, "metadata"), "W256", "", "has no equal: nothing is told of it")
	}
	if l.Unlimited {
		w.write(path, w.name(l.Name, chain), match+"  allow: true\n")
		return match
	}
	taken = match
	var key []string
	for _, c := range chain {
		if c.Value == "" || strings.Contains(c.Value, "*") && !c.Share {
			key = append(key, yamlName(c.Key))
		}
	}
	if len(key) > 0 {
		match += "  key: [" + strings.Join(key, ", ") + "]\n"
	}
	at := slices.IndexFunc(limit.DescriptorUnits, func(u limit.DescriptorUnit) bool { return u.Length == l.Unit })
	match += fmt.Sprintf("  rates: [{name: %s, limit: %d, per: %s}]\n", limit.DescriptorUnits[at].Name, l.Requests, limit.WindowName(l.Unit))
	if l.Shadow {
		match += "  mode: shadow\n"
	}
	w.write(path, w.name(l.Name, chain), match)
	return taken
}

// rest writes a rule that admits what a descriptor leaves to no other at its level, unless its
// limit has taken all of that.
func (w *rulesWriter) rest(path string, chain []*limit.DescriptorSpec, others []limit.DescriptorSpec, taken string) {
	below := map[string]bool{}
	var walk func(s *limit.DescriptorSpec)
	walk = func(s *limit.DescriptorSpec) {
		for i := range s.Below {
			below[s.Below[i].Key] = true
			walk(&s.Below[i])
		}
	}
	walk(chain[len(chain)-1])
	for i := range others {
		walk(&others[i])
	}
	var lacks []string
	if len(w.keys) <= mostLacks {
		lacks = w.others(chain, w.keys, below)
	}
	if match, ok := w.match("", chain, lacks); ok && match != taken { // of what cannot be said its own limit tells
		w.write(path, w.name("", chain)+".rest", match+"  allow: true\n")
	}
}

// mostLacks is up to how many keys of a tree each rule says which of them requests must
// not have. Of a tree with more it says so of those below alone: thousands of rules would
// list thousands.
const mostLacks = 50

// lacks are the keys that requests of a chain's limit do not have.
func (w *rulesWriter) lacks(chain []*limit.DescriptorSpec) []string {
	if len(w.keys) <= mostLacks {
		return w.others(chain, w.keys, nil)
	}
	below := map[string]bool{}
	for i := range chain[len(chain)-1].Below {
		below[chain[len(chain)-1].Below[i].Key] = true
	}
	return w.others(chain, below, nil)
}

// others are keys that are none of a chain's, nor of some.
func (w *rulesWriter) others(chain []*limit.DescriptorSpec, all, some map[string]bool) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		in := slices.ContainsFunc(chain, func(s *limit.DescriptorSpec) bool {
			return s.Key == key || s.Key == remoteAddress && key == "client_ip"
		})
		if !in && !some[key] && plainAttribute.MatchString(key) {
			keys = append(keys, yamlName(key))
		}
	}
	return keys
}

// yamlName is an attribute's name as YAML takes it for one: null is nothing to it.
func yamlName(key string) string {
	switch strings.ToLower(key) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n":
		return strconv.Quote(key)
	}
	return key
}

// match is what requests have that come to a descriptor. With no path it says nothing of
// what it cannot write.
func (w *rulesWriter) match(path string, chain []*limit.DescriptorSpec, lacks []string) (text string, ok bool) {
	fail := func(hint, format string, args ...any) (string, bool) {
		if path != "" {
			w.note(path, "E250", hint, "has no equal: "+format, args...)
		}
		return "", false
	}
	joined := map[string][]string{}
	for _, s := range chain {
		if !plainAttribute.MatchString(s.Key) {
			return fail("another descriptor_key in Envoy's routes", "%q is no name of an attribute", s.Key)
		}
		joined[s.Key] = append(joined[s.Key], s.Value)
	}
	var equals, has, when []string
	for _, key := range slices.Sorted(maps.Keys(joined)) {
		values := joined[key]
		one := strings.Join(values, ",") // as a request's are that has the key more than once
		switch {
		case len(values) > 1 && (slices.Contains(values, "") || strings.Contains(one, "*")):
			return fail("other keys in Envoy's routes", "the values of %q, which stands here more than once, are one text in our rules", key)
		case one == "" || one == "*":
			has = append(has, yamlName(key))
		case strings.Contains(one, "*"):
			has = append(has, yamlName(key))
			when = append(when, starWhen(key, one))
		default:
			equals = append(equals, yamlName(key)+": ["+strconv.Quote(one)+"]")
		}
	}
	text = "  match:\n"
	for _, part := range []struct {
		name, open, shut string
		words            []string
	}{{"equals", "{", "}", equals}, {"has", "[", "]", has}, {"lacks", "[", "]", lacks}} {
		if len(part.words) > 0 {
			text += "    " + part.name + ": " + part.open + strings.Join(part.words, ", ") + part.shut + "\n"
		}
	}
	if len(when) > 0 {
		text += "    when: " + strconv.Quote(strings.Join(when, " and ")) + "\n"
	}
	return text, true
}

// starWhen is the expression that a value with stars stands for.
func starWhen(key, value string) string {
	of := fmt.Sprintf("attr(%q)", key)
	if slices.Contains([]string{"method", "path", "host", "client_ip"}, key) {
		of = key
	}
	parts := strings.Split(value, "*")
	if len(parts) == 2 && parts[1] == "" {
		return fmt.Sprintf("%s startsWith %q", of, parts[0])
	}
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return fmt.Sprintf("%s matches %q", of, "(?s)^"+strings.Join(parts, ".*")+"$")
}

// name is one for a rule: the limit's, or else its path.
func (w *rulesWriter) name(given string, chain []*limit.DescriptorSpec) string {
	if plainName.MatchString(given) && len(given) < 50 && !w.taken[given] {
		return given
	}
	words := make([]string, len(chain))
	for i, s := range chain {
		words[i] = wholeKey(s)
	}
	name := strings.Trim(oddLetters.ReplaceAllString(strings.Join(words, "."), "-"), "-_.")
	return cmp.Or(name[:min(len(name), 50)], "rule")
}

// write adds a rule, whose name may be taken.
func (w *rulesWriter) write(from, name, text string) {
	for n, plain := 2, name; w.taken[name]; n++ {
		name = fmt.Sprintf("%s-%d", plain, n)
	}
	w.taken[name] = true
	w.rules = append(w.rules, writtenRule{from, name, text})
}
