package limit

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// pair is an entry of a descriptor.
type pair struct{ key, value string }

func (p pair) GetKey() string   { return p.key }
func (p pair) GetValue() string { return p.value }

// pairs reads "k=v k=v".
func pairs(text string) (entries []pair) {
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		entries = append(entries, pair{key, value})
	}
	return entries
}

// named is a limit of a name, by which tests tell it from others.
func named(name string) *DescriptorLimit {
	return &DescriptorLimit{Name: name, Requests: 10, Unit: time.Minute}
}

func treeOfSpecs(t testing.TB, below ...DescriptorSpec) *Descriptors {
	t.Helper()
	set, problems := Compile(Document{Namespace: "any name, even this", Descriptors: &DescriptorSpec{Below: below}})
	for _, p := range problems {
		if len(p) > 0 {
			t.Fatal(p)
		}
	}
	return set.Namespace("any name, even this").Descriptors()
}

func TestDescriptorsAreFound(t *testing.T) {
	tree := treeOfSpecs(t,
		DescriptorSpec{Key: "user", Limit: named("any user")},
		DescriptorSpec{Key: "user", Value: "vip"},
		DescriptorSpec{Key: "user", Value: "bot-*", Limit: named("bots"), Share: true},
		DescriptorSpec{Key: "user", Value: "bot-1*", Limit: named("never: the star before takes all")},
		DescriptorSpec{Key: "path", Value: "/a/*/b*c", Limit: named("stars")},
		DescriptorSpec{Key: "path", Below: []DescriptorSpec{{Key: "user", Limit: named("user of a path")}}},
		DescriptorSpec{Key: "path", Value: "/x", Below: []DescriptorSpec{{Key: "method", Value: "GET", Limit: named("get x")}}},
		DescriptorSpec{Key: "head*", Limit: named("keys"), Share: true},
		DescriptorSpec{Key: "a_b", Value: "c", Limit: named("a_b")},
		DescriptorSpec{Key: "free", Limit: &DescriptorLimit{Name: "free", Unlimited: true}},
	)
	for text, want := range map[string]string{
		"user=u1":               "any user user=u1",
		"user=":                 "any user user=",
		"user=vip":              "",
		"user=bot-7":            "bots user=bot-*",
		"user=bot-1x":           "bots user=bot-*",
		"user=bot-*":            "bots user=bot-*",
		"user=a,b=c":            `any user user=a\,b\=c`,
		"user=u1 path=/":        "",
		"path=/":                "",
		"path=/a/1/2/bxc":       `stars path=/a/1/2/bxc`,
		"path=/a/bc":            "",
		"path=/y user=u1":       "user of a path path=/y,user=u1",
		"path=/x user=u1":       "", // the reference does not turn back
		"path=/x method=GET":    "get x path=/x,method=GET",
		"path=/x method=GET a=": "",
		"header=1":              "keys header=head*",
		"headless=1":            "keys headless=head*",
		"a=b_c":                 "", // clients choose values
		"a_b=c":                 "a_b a_b=c",
		"free=1":                "free free=1",
		"other=1":               "",
		"":                      "",
	} {
		l, key := FindDescriptor(tree, pairs(text))
		got := ""
		if l != nil {
			got = l.Name + " " + key
		}
		if got != want {
			t.Errorf("%q meets %q, want %q", text, got, want)
		}
	}
}

// The names of rules are what counts are known by: they depend on nothing but the path.
func TestDescriptorsHaveNames(t *testing.T) {
	long := strings.Repeat("x", 80)
	names := map[string]string{}
	for _, path := range []string{"user", "user_vip", "a.b", `a\.b`, `a\.b.c`, `a.b\.c`, "override.second", "_x", "ü", long, long + "y", "path_/a", "path_/b"} {
		name := descriptorName(path)
		if !nameForm.MatchString(name) {
			t.Errorf("%q is called %q, which is no name", path, name)
		}
		if before, taken := names[name]; taken {
			t.Errorf("%q and %q are both called %q", before, path, name)
		}
		names[name] = path
	}
	for path, want := range map[string]string{"user_vip": "user_vip", "a.b": "a.b", "path_/a": "d-path_-a-af2a1d6b134bfb77"} {
		if got := descriptorName(path); got != want {
			t.Errorf("%q is called %q, want %q", path, got, want)
		}
	}
}

func TestDescriptorsBecomeRules(t *testing.T) {
	set, _ := Compile(Document{Namespace: "d", Descriptors: &DescriptorSpec{Below: []DescriptorSpec{
		{Key: "user", Limit: &DescriptorLimit{Requests: 5, Unit: 30 * 24 * time.Hour, Shadow: true}, Below: []DescriptorSpec{{Key: "path", Limit: named("")}}},
		{Key: "free", Limit: &DescriptorLimit{Unlimited: true}},
	}}})
	var names []string
	for _, r := range set.Rules() {
		names = append(names, r.Rates[0].Policy)
	}
	const want = "user.month user.path.minute override.second.second override.minute.minute override.hour.hour override.day.day override.week.week override.month.month override.year.year"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("rules %s, want %s", got, want)
	}
	if set.Written() != 2 {
		t.Errorf("%d of them are written, want 2", set.Written())
	}
	r := set.Rules()[0]
	if rate := r.Rates[0]; rate.Algorithm != FixedWindow || rate.Window != 30*24*time.Hour || rate.Limit != 5 || r.Charge != ChargeEach || r.Mode != Shadow {
		t.Errorf("%+v of %+v, want 5 in fixed windows of 30 days, each charged, in the shadow", rate, r)
	}
}

// A request meets the rule of its limit, and no other, however many there are.
func TestDescriptorsAreAsked(t *testing.T) {
	var below []DescriptorSpec
	for i := range 200 {
		below = append(below, DescriptorSpec{Key: fmt.Sprint("k", i), Limit: named("")})
	}
	set, _ := Compile(Document{Namespace: "d", Descriptors: &DescriptorSpec{Below: below}})
	ns := set.Namespace("d")
	req := ns.NewRequest()
	if rules := req.Rules(); len(rules) != 0 {
		t.Errorf("a request that asks nothing meets %d rules, want none", len(rules))
	}
	l, key := FindDescriptor(ns.Descriptors(), pairs("k7=v"))
	ns.Descriptors().Ask(req, l, key)
	if rules := req.Rules(); len(rules) != 1 || rules[0].Name != "k7" || rules[0].KeyText(req) != "descriptor=k7=v" {
		t.Fatalf("it meets %v, want k7 alone, by its entry", rules)
	}
	req.Reset()
	if !AskOverride(ns.Descriptors(), req, "", pairs("k7=v"), time.Hour, 3) || AskOverride(ns.Descriptors(), req, "", pairs("k7=v"), time.Hour+1, 3) {
		t.Fatal("an hour is not known, or a little more is")
	}
	rules := req.Rules()
	if len(rules) != 1 || rules[0].Name != "override.hour" || req.RateFor(rules[0].Rates[0]).Limit != 3 {
		t.Errorf("with a limit of its own it meets %v, want 3 an hour", rules)
	}
}
