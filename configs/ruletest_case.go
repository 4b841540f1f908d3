package configs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

func (r *testReader) testCase(path string, n *node) {
	c := TestCase{Line: n.at.line, Start: defaultStart}
	last := time.Duration(0) // at of the step before
	r.object(path, n, []field{
		{"name", "such as name: seven a minute", r.text(&c.Name)},
		{"start", "", r.instant(&c.Start)},
		{"cut", "", func(path string, n *node) {
			r.each(path, n, func(path string, n *node) { c.Cuts = append(c.Cuts, r.cut(path, n)) })
		}},
		{"steps", "such as steps: [{at: 0s, allow: 1}]", func(path string, n *node) {
			r.each(path, n, func(path string, n *node) {
				s := r.step(path, n)
				if at := path + ".at"; !r.reported(at) && s.At < last {
					r.mistake(at, r.placeOf(at), "E301", "order the steps by time; use every: for requests that go on meanwhile",
						"%s goes back: the step before is at %s", durationText(s.At), durationText(last))
				} else if !r.reported(at) {
					last = s.At
				}
				c.Steps = append(c.Steps, s)
			})
			if n.kind == kindList && len(n.items) == 0 {
				r.mistake(path, n.at, "E312", "such as steps: [{at: 0s, allow: 1}]", "there is no step: the case would pass by doing nothing")
			}
		}},
	})
	if i := slices.IndexFunc(r.test.Cases, func(o TestCase) bool { return o.Name == c.Name }); i >= 0 && c.Name != "" {
		at := path + ".name"
		r.mistake(at, r.placeOf(at), "E312", "--run picks cases by their names, so these must differ", "%q is already the name of the case on line %d", clip(c.Name), r.test.Cases[i].Line)
	}
	slices.SortStableFunc(c.Cuts, func(a, b TestCut) int { return cmp.Compare(a.From, b.From) })
	r.test.Cases = append(r.test.Cases, c)
}

// The instants that a case may start at: far from both ends of what an int64
// of nanoseconds holds.
var (
	firstStart = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	lastStart  = time.Date(2199, 12, 31, 0, 0, 0, 0, time.UTC)
)

func (r *testReader) instant(dst *time.Time) read {
	return func(path string, n *node) {
		t, err := time.Parse(time.RFC3339, n.text)
		switch {
		case n.kind != kindText:
			r.wrongKind(path, n, "an instant", "such as 2026-01-01T00:00:00Z")
		case err != nil:
			r.mistake(path, n.at, "E310", "such as 2026-01-01T00:00:00Z", "%q is not an instant", clip(n.text))
		case t.Before(firstStart) || t.After(lastStart):
			r.mistake(path, n.at, "E310", "1970-01-02 to 2199-12-31", "%s is out of range", clip(n.text))
		default:
			*dst = t.UTC()
		}
	}
}

func (r *testReader) cut(path string, n *node) (c TestCut) {
	r.object(path, n, []field{
		{"region", "the region that is cut off", r.text(&c.Region)},
		{"from", "such as from: 5s", r.between(&c.From, 0, maxTestSpan)},
		{"to", "such as to: 10s", r.between(&c.To, 0, maxTestSpan)},
	})
	var names []string
	for _, region := range r.test.Regions {
		names = append(names, region.Name)
	}
	if at := path + ".region"; !r.reported(at) && !r.bad["regions"] && !slices.Contains(names, c.Region) {
		r.mistake(at, r.placeOf(at), "E304", oneOf(c.Region, names), "there is no region %q", clip(c.Region))
	}
	switch at := path + ".to"; {
	case r.reported(at) || r.reported(path+".from"):
	case c.To <= c.From:
		r.mistake(at, r.placeOf(at), "E308", "give the end a later time than the start", "the cut ends at %s, but starts at %s", durationText(c.To), durationText(c.From))
	case c.To-c.From > maxTestCut:
		r.mistake(at, r.placeOf(at), "E308", "make it shorter", "the cut lasts %s; it may last %s", durationText(c.To-c.From), durationText(maxTestCut))
	}
	return c
}

func (r *testReader) step(path string, n *node) TestStep {
	s := TestStep{Line: n.at.line, Times: 1}
	report, giveBack := uint64(0), uint64(0)
	r.object(path, n, []field{
		{"at", "time since the start of the case, such as at: 0s", r.between(&s.At, 0, maxTestSpan)},
		{"every", "", r.between(&s.Every, 0, maxTestSpan)},
		{"times", "", whole(r.reader, &s.Times, 1, maxTestTimes)},
		{"edge", "", r.text(&s.Edge)},
		{"namespace", "", r.text(&s.Namespace)},
		{"attributes", "", r.attributes(&s.Attributes)},
		{"cost", "", whole(r.reader, &s.Cost, 1, 1<<53)},
		{"peek", "", r.flag(&s.Peek)},
		{"trusted", "", r.flag(&s.Trusted)},
		{"response", "", r.response(&s.Response)},
		{"report", "", whole(r.reader, &report, 1, 1<<53)},
		{"give_back", "", whole(r.reader, &giveBack, 1, 1<<53)},
		{"capacity", "", r.capacity(&s.Capacity)},
		{"allow", "", whole(r.reader, &s.Allow, 0, maxTestTimes)},
		{"deny", "", whole(r.reader, &s.Deny, 0, maxTestTimes)},
		{"rule", "", optional(r.text, &s.Last.Rule)},
		{"policy", "", optional(r.text, &s.Last.Policy)},
		{"zone", "", optional(r.text, &s.Last.Zone)},
		{"remaining", "", optional(func(dst *uint64) read { return whole(r.reader, dst, 0, 1<<53) }, &s.Last.Remaining)},
		{"retry_after", "", optional(func(dst *time.Duration) read { return r.between(dst, 0, 2*limit.MaxWindow) }, &s.Last.RetryAfter)},
		{"delay", "", optional(func(dst *time.Duration) read { return r.between(dst, 0, limit.MaxWindow) }, &s.Last.Delay)},
		{"near_limit", "", optional(r.flag, &s.Last.NearLimit)},
	})
	if n.kind != kindMapping {
		return s
	}
	r.act(path, n, &s)
	switch s.Act {
	case ActAsk:
		r.verdicts(path, n, &s)
	case ActReport:
		s.Cost = report
	case ActGiveBack:
		s.Cost = giveBack
	}
	if at := path + ".every"; !r.reported(at) && !r.reported(path+".times") && s.Every > maxTestSpan/time.Duration(s.Times) {
		r.mistake(at, r.placeOf(at), "E013", "fewer times, or closer together", "%d times every %s take longer than %s", s.Times, durationText(s.Every), durationText(maxTestSpan))
	}
	if s.Act != ActSet || s.Edge != "" {
		r.whereTo(path, n, &s)
	}
	return s
}

// given says that a step has a word.
func given(n *node, name string) bool {
	return slices.ContainsFunc(n.entries, func(e entry) bool { return e.key == name })
}

// The words of steps that decide about nothing, beside when and where.
var (
	wordsOfReports = []string{"rule", "policy", "remaining", "near_limit", "attributes", "namespace", "edge", "every", "times", "at", "capacity"}
	wordsOfSetting = []string{"at", "edge", "capacity"}
)

// act finds out what a step does, and reports words that do not go with it.
func (r *testReader) act(path string, n *node, s *TestStep) {
	what, may := "", wordsOfReports
	switch {
	case given(n, "report"):
		s.Act, what = ActReport, "report"
	case given(n, "give_back"):
		s.Act, what = ActGiveBack, "give_back"
	case given(n, "capacity") && !given(n, "allow") && !given(n, "deny"):
		s.Act, what, may = ActSet, "capacity", wordsOfSetting
	default:
		return
	}
	for _, e := range n.entries {
		at := path + "." + e.key
		if _, known := r.at[at]; !known || r.reported(at) || e.key == what || slices.Contains(may, e.key) {
			continue
		}
		if s.Act == ActSet {
			r.mistake(at, e.at, "E314", "add allow: or deny:, for requests", "%s is said of requests, and the step makes none", e.key)
		} else {
			r.mistake(at, e.at, "E314", "make it a step of its own", "%s does not go with %s, which decides about nothing", e.key, what)
		}
		s.Allow, s.Deny = 0, 0
		return // the others follow from it
	}
}

// response reads {status: 401, code: UNAUTHENTICATED}.
func (r *testReader) response(dst *map[string]string) read {
	return func(path string, n *node) {
		status, code := 0, ""
		r.object(path, n, []field{
			{"status", "", whole(r.reader, &status, 100, 599)},
			{"code", "", r.text(&code)},
		})
		*dst = map[string]string{}
		if given(n, "status") {
			(*dst)["status"] = strconv.Itoa(status)
		}
		if given(n, "code") {
			(*dst)["code"] = code
		}
		if len(*dst) == 0 && !r.reported(path) {
			r.mistake(path, n.at, "E315", "such as response: {status: 401}", "the response is empty")
		}
	}
}

// capacity reads {api: 0.5}, {api: 50%}: what PUT /admin/v1/capacity takes.
func (r *testReader) capacity(dst *map[string]float64) read {
	return func(path string, n *node) {
		const hint = "the part in use, such as capacity: {api: 0.5}"
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", hint)
			return
		}
		*dst = make(map[string]float64, len(n.entries))
		for _, e := range n.entries {
			if !r.visit(n) {
				return
			}
			at := join(path, e.key)
			r.at[at] = e.at
			used, read := 0.0, r.number
			if strings.HasSuffix(e.value.text, "%") {
				read = r.percent
			}
			if read(&used)(at, e.value); strings.HasSuffix(e.value.text, "%") {
				used /= 100
			} else if used > 1 && !r.reported(at) {
				r.mistake(at, e.value.at, "E315", "0.7 or 70% is seventy percent; where more is in use than there is, 105%", "%s is more than all", clip(e.value.text))
			}
			switch {
			case r.reported(at):
			case !(used >= 0 && used <= 1000): // nor NaN
				r.mistake(at, e.value.at, "E315", hint, "%s is no part in use", clip(e.value.text))
			case limit.ValidSignal(e.key) != nil:
				r.mistake(at, e.at, "E315", `letters, digits, "_", "." and "-", at most 63`, "%q is not the name of a capacity", clip(e.key))
			default:
				r.signal(at, e)
			}
			(*dst)[e.key] = used
		}
		if len(n.entries) == 0 {
			r.mistake(path, n.at, "E315", hint, "no capacity is named")
		}
	}
}

// signal checks that a rule reads a capacity: else it would open nothing.
func (r *testReader) signal(path string, e entry) {
	if r.set == nil {
		return
	}
	var signals []string
	for _, rule := range r.set.Rules() {
		if rule.Elastic != nil && rule.Elastic.Signal != "" {
			signals = append(signals, rule.Elastic.Signal)
		}
	}
	slices.Sort(signals)
	signals = slices.Compact(signals)
	switch {
	case slices.Contains(signals, e.key):
	case len(signals) == 0:
		r.mistake(path, e.at, "E306", "leave it out, or write one, such as margin: {elastic: {up_to: 50%, while: capacity."+e.key+" < 70%}}", "no rule's elastic margin reads the capacity %q", clip(e.key))
	default:
		r.mistake(path, e.at, "E306", oneOf(e.key, signals), "no rule's elastic margin reads the capacity %q", clip(e.key))
	}
}

// optional reads a value that is nil where it is not given.
func optional[T any](value func(*T) read, dst **T) read {
	return func(path string, n *node) {
		*dst = new(T)
		value(*dst)(path, n)
	}
}

// verdicts checks allow and deny against times, and derives what is not given.
func (r *testReader) verdicts(path string, n *node, s *TestStep) {
	allow, deny := given(n, "allow"), given(n, "deny")
	for _, name := range []string{"times", "allow", "deny"} {
		if r.reported(path + "." + name) {
			return
		}
	}
	told := func(name string, want int) {
		hint := fmt.Sprintf("times: %d", want)
		if !given(n, "times") {
			hint += "; without it a step is one request"
		}
		at := path + "." + name
		r.mistake(at, r.placeOf(at), "E303", hint, "%d allowed and %d denied, but times is %d", s.Allow, s.Deny, s.Times)
	}
	switch {
	case !allow && !deny:
		r.mistake(path, n.at, "E302", "add allow:, deny: or both", "the step expects nothing")
	case allow && deny && s.Allow+s.Deny != s.Times:
		told("allow", s.Allow+s.Deny)
	case allow && s.Allow > s.Times:
		told("allow", s.Allow)
	case deny && s.Deny > s.Times:
		told("deny", s.Deny)
	case allow:
		s.Deny = s.Times - s.Allow
	default:
		s.Allow = s.Times - s.Deny
	}
}

// whereTo checks the edge, and what the step says of the rules.
func (r *testReader) whereTo(path string, n *node, s *TestStep) {
	edges := r.edgeNames()
	switch at := path + ".edge"; {
	case r.reported(at) || r.bad["regions"]:
	case s.Edge == "" && len(edges) > 1:
		r.mistake(path, n.at, "E304", "such as edge: "+edges[0], "the step names no edge, and there are %d", len(edges))
	case s.Edge == "" && len(edges) == 1:
		s.Edge = edges[0]
	case !slices.Contains(edges, s.Edge) && len(edges) == 1 && edges[0] == defaultEdge:
		r.mistake(at, r.placeOf(at), "E304", "say first where it is, such as regions: {eu: [eu-1, eu-2], us: [us-1]}", "there is no edge %q", clip(s.Edge))
	case !slices.Contains(edges, s.Edge):
		r.mistake(at, r.placeOf(at), "E304", oneOf(s.Edge, edges), "there is no edge %q", clip(s.Edge))
	}
	if r.set == nil {
		return
	}
	names := r.set.Names()
	at := path + ".namespace"
	switch only := r.set.Only(); {
	case r.reported(at):
		return
	case s.Namespace == "" && only == nil:
		r.mistake(path, n.at, "E305", "such as namespace: "+names[0], "the step names no namespace, and the rules have %d", len(names))
		return
	case s.Namespace == "":
		s.Namespace = only.Name
	}
	ns := r.set.Namespace(s.Namespace)
	if ns == nil {
		r.mistake(at, r.placeOf(at), "E305", oneOf(s.Namespace, names), "there is no namespace %q", clip(s.Namespace))
		return
	}
	r.known(path, s, ns)
}

// known checks the words that must stand in the rules of the step's namespace.
func (r *testReader) known(path string, s *TestStep, ns *limit.Namespace) {
	req := ns.NewRequest()
	defer req.Release()
	for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
		if !req.Set(name, s.Attributes[name]) {
			at := join(path+".attributes", name)
			r.mistake(at, r.placeOf(at), "E306", oneOf(name, r.attributesOf(ns.Name)), "no rule reads the attribute %q", clip(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Response)) {
		if at := path + ".response." + name; !r.reported(at) && !req.Set("response."+name, s.Response[name]) {
			r.mistake(at, r.placeOf(at), "E306", "the count_when of a rule does: leave it out, or write one", "no rule reads response.%s", name)
		}
	}
	rules, policies := []string{NoRule}, []string{NoRule}
	for _, rule := range r.set.Rules() {
		if rule.Namespace != ns.Name {
			continue
		}
		rules = append(rules, rule.Name)
		for _, rate := range rule.Rates {
			policies = append(policies, rate.Policy)
		}
	}
	var zones []string
	for _, z := range []limit.Zone{limit.ZoneNormal, limit.ZoneSoft, limit.ZoneHard, limit.ZoneElastic, limit.ZoneShadow} {
		zones = append(zones, z.String())
	}
	for _, want := range []struct {
		name  string
		value *string
		words []string
	}{{"rule", s.Last.Rule, rules}, {"policy", s.Last.Policy, policies}, {"zone", s.Last.Zone, append(zones, limit.Zone(0).String())}} {
		if at := join(path, want.name); want.value != nil && !r.reported(at) && !slices.Contains(want.words, *want.value) {
			r.mistake(at, r.placeOf(at), "E309", oneOf(*want.value, want.words), "there is no %s %q", want.name, clip(*want.value))
		}
	}
}

// attributesOf are the names that a namespace's rules read, for hints.
func (r *testReader) attributesOf(namespace string) []string {
	names := map[string]bool{"method": true, "path": true, "host": true, "client_ip": true}
	add := func(doc *limit.Document, words []string) {
		for _, w := range words {
			names[w] = true
			for _, from := range doc.Keys[w].From {
				names[from] = true
			}
		}
	}
	for i := range r.test.Rules {
		doc := &r.test.Rules[i]
		if doc.Namespace != namespace {
			continue
		}
		for j := range doc.Rules {
			add(doc, doc.Rules[j].Key)
			add(doc, doc.Rules[j].Match.Has)
			add(doc, doc.Rules[j].Match.Lacks)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// attributes reads {user: u1, path: /login}.
func (r *testReader) attributes(dst *map[string]string) read {
	return func(path string, n *node) {
		if n.kind != kindMapping {
			r.wrongKind(path, n, "a mapping", "such as attributes: {user: u1}")
			return
		}
		*dst = make(map[string]string, len(n.entries))
		for _, e := range n.entries {
			if !r.visit(n) {
				return
			}
			at := join(path, e.key)
			r.at[at] = e.at
			value := ""
			r.text(&value)(at, e.value)
			(*dst)[e.key] = value
		}
	}
}
