package limit_test

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// What is wrong with an exception is told by its code, with a hint.
func TestExcepts(t *testing.T) {
	set, problems := limit.Compile(limit.Document{Namespace: "shop", Rules: []limit.RuleSpec{
		{Name: "api", Key: []string{"user"}, MinGap: time.Second, Rates: []limit.RateSpec{{Name: "minute", Limit: 5, Per: time.Minute}, {Name: "daily", Limit: 50, Per: 24 * time.Hour}}},
		{Name: "log", Key: []string{"user", "client_ip"}, Rates: []limit.RateSpec{{Name: "r", Algorithm: "sliding_log", Limit: 5, Per: time.Minute}}, Candidate: &limit.CandidateSpec{Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}},
		{Name: "exact", Key: []string{"user"}, Rates: []limit.RateSpec{{Name: "r", Limit: 5, Per: time.Minute}}, Consistency: "strict"},
		{Name: "out", Deny: true, Match: limit.MatchSpec{Has: []string{"banned"}}},
	}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	later := time.Unix(2_000_000_000, 0)
	good := limit.Exception{Namespace: "shop", Rule: "api", Rate: "minute", Key: []string{"u"}, Kind: limit.KeyOverride, Amount: 9, Until: later}
	for name, tc := range map[string]struct {
		change func(*limit.Exception)
		want   string
	}{
		"override":               {func(*limit.Exception) {}, ""},
		"override to nothing":    {func(e *limit.Exception) { e.Amount = 0 }, ""},
		"by policy":              {func(e *limit.Exception) { e.Rate = "api.minute" }, ""},
		"by the key's name":      {func(e *limit.Exception) { e.Key, e.Name = nil, 7 }, ""},
		"grant for all rates":    {func(e *limit.Exception) { e.Kind, e.Rate = limit.KeyGrant, "" }, ""},
		"reset":                  {func(e *limit.Exception) { e.Kind, e.Rate, e.Until = limit.KeyReset, "", time.Time{} }, ""},
		"reset of a strict rule": {func(e *limit.Exception) { e.Kind, e.Rate, e.Rule = limit.KeyReset, "", "exact" }, ""},
		"other namespace":        {func(e *limit.Exception) { e.Namespace = "x" }, "E330"},
		"other rule":             {func(e *limit.Exception) { e.Rule = "x" }, "E331"},
		"rule without rates":     {func(e *limit.Exception) { e.Rule = "out" }, "E331"},
		"candidate":              {func(e *limit.Exception) { e.Rule = "log.candidate" }, "E331"},
		"no key":                 {func(e *limit.Exception) { e.Key = nil }, "E332"},
		"key of too few parts":   {func(e *limit.Exception) { e.Rule, e.Rate = "log", "" }, "E332"},
		"empty part":             {func(e *limit.Exception) { e.Key = []string{""} }, "E332"},
		"no kind":                {func(e *limit.Exception) { e.Kind = 0 }, "E333"},
		"reset without a number": {func(e *limit.Exception) { e.Kind, e.Rate, e.Amount = limit.KeyReset, "", 0 }, "E333"},
		"reset of one rate":      {func(e *limit.Exception) { e.Kind = limit.KeyReset }, "E334"},
		"grant of nothing":       {func(e *limit.Exception) { e.Kind, e.Amount = limit.KeyGrant, 0 }, "E335"},
		"more than is counted":   {func(e *limit.Exception) { e.Amount = 1 << 60 }, "E335"},
		"grant of more than a log": {func(e *limit.Exception) {
			*e = limit.Exception{Namespace: "shop", Rule: "log", Key: []string{"u", "192.0.2.1"}, Kind: limit.KeyGrant, Amount: limit.MaxLog - 4, Until: later}
		}, "E335"},
		"grant of as much as a log": {func(e *limit.Exception) {
			*e = limit.Exception{Namespace: "shop", Rule: "log", Key: []string{"u", "192.0.2.1"}, Kind: limit.KeyGrant, Amount: limit.MaxLog - 5, Until: later}
		}, ""},
		"for good":                    {func(e *limit.Exception) { e.Until = time.Time{} }, "E336"},
		"other rate":                  {func(e *limit.Exception) { e.Rate = "hourly" }, "E337"},
		"gap":                         {func(e *limit.Exception) { e.Rate = "min_gap" }, "E337"},
		"one limit for several rates": {func(e *limit.Exception) { e.Rate = "" }, "E337"},
		"strict":                      {func(e *limit.Exception) { e.Rule, e.Rate = "exact", "" }, "E338"},
	} {
		t.Run(name, func(t *testing.T) {
			e := good
			tc.change(&e)
			rule, p := set.Excepts(&e)
			switch {
			case p == nil && (tc.want != "" || rule == nil || rule.Name != e.Rule):
				t.Errorf("%+v is good, of rule %v; want %q", e, rule, tc.want)
			case p != nil && (p.Code != tc.want || p.Hint == "" || p.Path == "" || p.Detail == ""):
				t.Errorf("%+v: %s %v, want %q", e, p.Code, p, tc.want)
			}
		})
	}
}

// A key that an operator writes is that of a request with the same values.
func TestKeyOfValues(t *testing.T) {
	ns := compileNamespace(t, limit.Document{
		Keys:  map[string]limit.KeySource{"net": {From: []string{"client_ip"}, IPv4Prefix: 24, IPv6Prefix: 48}},
		Rules: []limit.RuleSpec{{Name: "r", Key: []string{"user", "net", "header.X-Org"}}},
	})
	for _, values := range [][]string{{"u", "192.0.2.7", "o"}, {"u", "2001:db8::1", "o"}, {"192.0.2.7", "none", "o\x00"}} {
		req := request(ns, map[string]string{"user": values[0], "client_ip": values[1], "header.X-Org": values[2]})
		rule := req.Rules()[0]
		want, ok := rule.AppendKey(nil, req)
		if got := rule.AppendKeyOf(nil, values); !ok || string(got) != string(want) {
			t.Errorf("%q: key %q, want %q", values, got, want)
		}
		req.Release()
	}
}

// What is stored is read as it was; nothing else is, and nothing panics.
func FuzzExceptionBody(f *testing.F) {
	for _, e := range []limit.Exception{
		{Rule: "r", Rate: "m", Key: []string{"u", "\x00é"}, Kind: limit.KeyOverride},
		{Rule: "r", Name: 0xab, Kind: limit.KeyReset, Amount: 1 << 63},
		{Rule: "r", Kind: limit.KeyGrant, Amount: 9},
	} {
		f.Add(string(e.Body()))
	}
	for _, text := range []string{`{"rule":"r"}`, `{"rule":"r","add":1,"limit":2}`, `{"rule":"r","reset":"0"}`, `{"rule":"r","add":1,"name":"x"}`, `{"add":-1}`, `{"rule":"r","add":1,"more":2}`, `[`} {
		if err := new(limit.Exception).ReadBody([]byte(text)); err == nil {
			f.Errorf("%s is read as an exception", text)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var e, again limit.Exception
		if e.ReadBody([]byte(text)) != nil {
			return
		}
		if err := again.ReadBody(e.Body()); err != nil || string(again.Body()) != string(e.Body()) {
			t.Errorf("%s: read as %+v, and then as %+v, %v", text, e, again, err)
		}
	})
}
