package configs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillgate/spillgate/edge/limit"
)

// Where the words of envoyproxy/ratelimit's configuration have a meaning. It takes any of
// them anywhere, and passes over those that have none there.
var (
	envoyRootWords       = []string{"domain", "descriptors"}
	envoyDescriptorWords = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata"}
	envoyLimitWords      = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
	envoyReplacesWords   = []string{"name"}

	envoyWords = slices.Concat(envoyRootWords, envoyDescriptorWords[:3], envoyDescriptorWords[4:], envoyLimitWords)
)

// envoyHome says where a word belongs that has no meaning where it stands.
func envoyHome(word string) string {
	switch {
	case slices.Contains(envoyRootWords, word):
		return "it belongs to the top of the file"
	case slices.Contains(envoyDescriptorWords, word):
		return "it belongs to a descriptor, beside its key"
	}
	return "it belongs to a rate_limit"
}

// parseEnvoyFile reads a file of envoyproxy/ratelimit's: what that refuses is refused,
// and what it takes is taken, but for what envoy_test.go names.
func parseEnvoyFile(f rulesFile) ([]parsed, []Mistake) {
	src, name := f.source(), f.name
	trees, mistakes := parseTree(src, f.text)
	if len(trees) == 0 {
		if len(mistakes) == 0 {
			mistakes = []Mistake{{File: name, Code: "E004", Detail: "the file is empty", Hint: "it starts with: domain: NAME"}}
		}
		return nil, mistakes
	}
	if isOf(trees[0], "schema", "domain") {
		return nil, []Mistake{otherFormat(src, trees[0], FormatSpillgate)}
	}
	r := &envoyReader{reader: newReader(src), names: map[string]bool{}}
	doc := r.document(trees[0])
	if len(trees) > 1 {
		r.warn("", trees[1].at, "W240", "give each domain a file", "only the first document of a file counts")
	}
	r.replaced()
	return []parsed{{doc: doc, reader: r.reader}}, sortMistakes(append(mistakes, r.mistakes...))
}

// envoyReader reads one file of that format.
type envoyReader struct {
	*reader
	rules    int             // limits read, each of which becomes a rule
	names    map[string]bool // of limits
	replaces []replacing
}

// replacing is a limit that takes the place of others.
type replacing struct {
	path, name string
	at         position
}

func (r *envoyReader) document(n *node) limit.Document {
	doc := limit.Document{Descriptors: &limit.DescriptorSpec{}, Defaults: envoyDefaults()}
	r.words("", n, envoyRootWords, map[string]read{
		"domain": func(path string, n *node) {
			r.text(&doc.Namespace)(path, n)
			r.at["namespace"] = n.at // as the compiler calls it
		},
		"descriptors": r.descriptors(doc.Descriptors),
	})
	if doc.Namespace == "" && !r.reported("domain") {
		r.mistake("domain", n.at, "E014", "such as domain: shop, as Envoy's filter has it", "domain is missing")
	}
	if doc.Namespace == "" {
		r.bad["namespace"] = true // what the compiler would say of none
	}
	return doc
}

// words reads a mapping whose words are known: each as it is to be read, those that have
// a meaning elsewhere as what they may be anywhere.
func (r *envoyReader) words(path string, n *node, here []string, reads map[string]read) {
	if n.kind != kindMapping {
		r.wrongKind(path, n, "a mapping", "write name: value, a line for each")
		return
	}
	r.at[path] = n.at
	if n.partial {
		r.bad[path] = true
	}
	for _, e := range n.entries {
		if !r.visit(n) {
			return
		}
		at := join(path, e.key)
		r.at[at] = e.value.at
		switch {
		case reads[e.key] != nil:
			if e.value.kind != kindNull { // as if it did not stand there
				reads[e.key](at, e.value)
			}
		case slices.Contains(here, e.key):
			r.anything(at, e.value)
		case slices.Contains(envoyWords, e.key):
			r.anything(at, e.value)
			r.warn(at, e.at, "W241", envoyHome(e.key), "%s has no meaning here", e.key)
		default:
			hint := "one of: " + strings.Join(here, ", ")
			if near := suggest(e.key, envoyWords); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
				r.bad[join(path, near)] = true // that it is missing need not be told too
			}
			r.mistake(at, e.at, "E007", hint, "%q is not known here", clip(e.key))
		}
	}
}

// anything checks what is passed over: its words must be known all the same.
func (r *envoyReader) anything(path string, n *node) {
	if strings.HasSuffix(path, "metadata") && n.kind != kindBroken { // where all are
		return
	}
	switch n.kind {
	case kindMapping:
		for _, e := range n.entries {
			at := join(path, e.key)
			if !slices.Contains(envoyWords, e.key) {
				r.mistake(at, e.at, "E007", "one of: "+strings.Join(envoyWords, ", "), "%q is not known here", clip(e.key))
			} else if r.visit(n) {
				r.anything(at, e.value)
			}
		}
	case kindList:
		r.each(path, n, func(path string, n *node) {
			if n.kind != kindMapping {
				r.wrongKind(path, n, "a mapping", "write name: value, a line for each")
			} else {
				r.anything(path, n)
			}
		})
	case kindBroken:
		r.bad[path] = true
	default:
		r.scalar(path, n)
	}
}

func (r *envoyReader) descriptors(to *limit.DescriptorSpec) read {
	return func(path string, n *node) {
		first := map[string]position{}
		r.each(path, n, func(path string, n *node) {
			spec, ok := r.descriptor(path, n)
			whole := wholeKey(&spec)
			switch before, dup := first[whole]; {
			case !ok:
			case dup:
				r.mistake(path, n.at, "E242", "drop one, or give one another value", "%q stands here twice, key and value joined by \"_\"; first on line %d", clip(whole), r.src.lineOf(before.line))
			default:
				first[whole] = n.at
			}
			to.Below = append(to.Below, spec)
		})
	}
}

// wholeKey is a descriptor's key and value as one text.
func wholeKey(spec *limit.DescriptorSpec) string {
	if spec.Value == "" {
		return spec.Key
	}
	return spec.Key + "_" + spec.Value
}

func (r *envoyReader) descriptor(path string, n *node) (spec limit.DescriptorSpec, ok bool) {
	var shadow, quota, metric bool
	var meta map[string]any
	r.words(path, n, envoyDescriptorWords, map[string]read{
		"key":             r.text(&spec.Key),
		"value":           r.text(&spec.Value),
		"shadow_mode":     r.flag(&shadow),
		"quota_mode":      r.flag(&quota),
		"detailed_metric": r.flag(&metric), // no metric of ours is told by key
		"value_to_metric": r.flag(&metric),
		"share_threshold": r.flag(&spec.Share),
		"metadata":        r.metadata(&meta),
		"rate_limit":      func(path string, n *node) { spec.Limit = r.limit(path, n) },
		// Those below come later, so that rules stand in the order of the file.
		"descriptors": func(string, *node) {},
	})
	if ok = n.kind == kindMapping && !r.bad[path]; ok && spec.Key == "" && !r.bad[join(path, "key")] {
		r.mistake(join(path, "key"), n.at, "E014", "such as key: user", "key is missing")
		ok = false
	}
	if ok && spec.Share && !strings.Contains(wholeKey(&spec), "*") {
		r.mistake(join(path, "share_threshold"), r.at[join(path, "share_threshold")], "E243", "such as value: files/*", "share_threshold belongs to values with a star")
	}
	if l := spec.Limit; l != nil {
		l.Shadow, l.Quota, l.Metadata = shadow, quota, meta
		if !l.Unlimited {
			rule := fmt.Sprintf("rules[%d]", r.rules) // as the compiler calls it
			r.at[rule], r.bad[rule] = n.at, l.Unit == 0
			r.rules++
		}
	}
	for _, e := range n.entries {
		if e.key == "descriptors" && e.value.kind != kindNull {
			r.descriptors(&spec)(join(path, e.key), e.value)
		}
	}
	return spec, ok
}

func (r *envoyReader) limit(path string, n *node) *limit.DescriptorLimit {
	l := &limit.DescriptorLimit{}
	unit := ""
	r.words(path, n, envoyLimitWords, map[string]read{
		"unit":              r.text(&unit),
		"requests_per_unit": r.count(&l.Requests),
		"unlimited":         r.flag(&l.Unlimited),
		"name":              r.text(&l.Name),
		"replaces": func(path string, n *node) {
			r.each(path, n, func(path string, n *node) {
				name := ""
				r.words(path, n, envoyReplacesWords, map[string]read{"name": r.text(&name)})
				if name == "" && !r.reported(join(path, "name")) {
					r.mistake(join(path, "name"), n.at, "E014", "the name of another rate_limit", "name is missing")
				}
				l.Replaces = append(l.Replaces, name)
			})
		},
	})
	if n.kind != kindMapping {
		return l
	}
	for i, name := range l.Replaces {
		if at := fmt.Sprintf("%s.replaces[%d]", path, i); name == l.Name && name != "" {
			r.mistake(at, r.at[at], "E244", "the name of another rate_limit", "%q is the name of this rate_limit", clip(name))
		} else {
			r.replaces = append(r.replaces, replacing{at, name, r.at[at]})
		}
	}
	r.names[l.Name] = true
	r.unit(path, n, l, unit)
	return l
}

// unit reads the unit of a limit, which one without end has not.
func (r *envoyReader) unit(path string, n *node, l *limit.DescriptorLimit, unit string) {
	at := join(path, "unit")
	known := slices.IndexFunc(limit.DescriptorUnits, func(u limit.DescriptorUnit) bool { return strings.ToUpper(unit) == strings.ToUpper(u.Name) })
	var units []string
	for _, u := range limit.DescriptorUnits {
		units = append(units, u.Name)
	}
	switch {
	case r.bad[at] || r.bad[join(path, "unlimited")]:
	case l.Unlimited && known >= 0:
		r.mistake(at, r.at[at], "E245", "drop the unit, or unlimited", "what is unlimited has no unit")
	case l.Unlimited:
	case known >= 0:
		l.Unit = limit.DescriptorUnits[known].Length
		if _, given := r.at[join(path, "requests_per_unit")]; !given {
			r.warn(path, n.at, "W242", "such as requests_per_unit: 100", "it denies everything: requests_per_unit is not given, and 0 then")
		}
	case unit == "":
		r.mistake(at, n.at, "E014", strings.Join(units, ", "), "unit is missing")
	default:
		hint := strings.Join(units, ", ")
		if near := suggest(strings.ToLower(unit), units); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		r.mistake(at, r.at[at], "E246", hint, "%q is no unit", clip(unit))
	}
}

// replaced warns of names that no limit of the file has.
func (r *envoyReader) replaced() {
	for _, p := range r.replaces {
		if p.name != "" && !r.names[p.name] {
			r.warn(p.path, p.at, "W243", "a rate_limit's name", "no rate_limit of this file is called %q", clip(p.name))
		}
	}
}
