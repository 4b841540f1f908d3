package limit_test

import (
	"math"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// Each rate has one mistake, which is told with its place and a hint.
func TestRatesThatCannotWork(t *testing.T) {
	bucket := func(change func(*limit.RateSpec)) limit.RateSpec {
		s := limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5)}
		change(&s)
		return s
	}
	leaky := func(change func(*limit.RateSpec)) limit.RateSpec {
		s := limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 10, Outflow: perSecond(5)}
		change(&s)
		return s
	}
	window := func(algorithm string, change func(*limit.RateSpec)) limit.RateSpec {
		s := limit.RateSpec{Algorithm: algorithm, Limit: 10, Per: time.Minute}
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		spec       limit.RateSpec
		soft       float64
		code, path string
	}{
		"no capacity":            {spec: bucket(func(s *limit.RateSpec) { s.Capacity = 0 }), code: "E153", path: "capacity"},
		"no refill":              {spec: bucket(func(s *limit.RateSpec) { s.Refill = limit.Flow{} }), code: "E153", path: "refill"},
		"no outflow":             {spec: leaky(func(s *limit.RateSpec) { s.Outflow = limit.Flow{} }), code: "E153", path: "outflow"},
		"refill of nothing":      {spec: bucket(func(s *limit.RateSpec) { s.Refill.Units = 0 }), code: "E154", path: "refill"},
		"refill in no time":      {spec: bucket(func(s *limit.RateSpec) { s.Refill.Per = -1 }), code: "E154", path: "refill"},
		"too much refill":        {spec: bucket(func(s *limit.RateSpec) { s.Refill.Units = limit.MaxUnits + 1 }), code: "E154", path: "refill"},
		"initial too small":      {spec: bucket(func(s *limit.RateSpec) { s.Initial = 9 }), code: "E155", path: "initial"},
		"max_wait without queue": {spec: leaky(func(s *limit.RateSpec) { s.MaxWait = time.Second }), code: "E156", path: "max_wait"},
		"max_wait before now":    {spec: leaky(func(s *limit.RateSpec) { s.Queue, s.MaxWait = true, -1 }), code: "E156", path: "max_wait"},
		"a year to drain":        {spec: bucket(func(s *limit.RateSpec) { s.Refill.Per = 37 * 24 * time.Hour; s.Refill.Units = 1 }), code: "E157", path: "capacity"},
		"a year with its margin": {spec: bucket(func(s *limit.RateSpec) { s.Refill.Per = 34 * 24 * time.Hour; s.Refill.Units = 1 }), soft: 10, code: "E157", path: "capacity"},
		"too much capacity":      {spec: bucket(func(s *limit.RateSpec) { s.Capacity, s.Refill.Units = limit.MaxUnits+1, limit.MaxUnits }), code: "E143", path: "capacity"},
		"too much with margin":   {spec: bucket(func(s *limit.RateSpec) { s.Capacity, s.Refill.Units = limit.MaxUnits, limit.MaxUnits }), soft: 1, code: "E143", path: "capacity"},
		"limit of a bucket":      {spec: bucket(func(s *limit.RateSpec) { s.Limit = 10 }), code: "E147", path: "limit"},
		"window of a bucket":     {spec: bucket(func(s *limit.RateSpec) { s.Per = time.Minute }), code: "E147", path: "per"},
		"day of a bucket":        {spec: bucket(func(s *limit.RateSpec) { s.Period = "day" }), code: "E147", path: "per"},
		"rounding of a bucket":   {spec: bucket(func(s *limit.RateSpec) { s.Round = "down" }), code: "E147", path: "round"},
		"slices of a bucket":     {spec: bucket(func(s *limit.RateSpec) { s.Slices = 4 }), code: "E147", path: "slices"},
		"outflow of tokens":      {spec: bucket(func(s *limit.RateSpec) { s.Outflow = perSecond(1) }), code: "E147", path: "outflow"},
		"queue of tokens":        {spec: bucket(func(s *limit.RateSpec) { s.Queue = true }), code: "E147", path: "queue"},
		"refill of a leak":       {spec: leaky(func(s *limit.RateSpec) { s.Refill = perSecond(1) }), code: "E147", path: "refill"},
		"initial of a leak":      {spec: leaky(func(s *limit.RateSpec) { s.Initial = 20 }), code: "E147", path: "initial"},
		"capacity of a window":   {spec: window("sub_windows", func(s *limit.RateSpec) { s.Capacity = 10 }), code: "E147", path: "capacity"},
		"lease of a window":      {spec: window("sub_windows", func(s *limit.RateSpec) { s.Lease = time.Second }), code: "E147", path: "lease"},
		"denied hits of slices":  {spec: window("sub_windows", func(s *limit.RateSpec) { s.CountDenied = true }), code: "E147", path: "count_denied"},
		"align of a log":         {spec: window("sliding_log", func(s *limit.RateSpec) { s.Align = "first_hit" }), code: "E147", path: "align"},
		"a log too long":         {spec: window("sliding_log", func(s *limit.RateSpec) { s.Limit = limit.MaxLog + 1 }), code: "E159", path: "limit"},
		"a log with its margin":  {spec: window("sliding_log", func(s *limit.RateSpec) { s.Limit = limit.MaxLog }), soft: 1, code: "E159", path: "limit"},
		"margin on a log of 0":   {spec: window("sliding_log", func(s *limit.RateSpec) { s.Limit = 0 }), soft: 1, code: "E144", path: "limit"},
		"a log of no time":       {spec: window("sliding_log", func(s *limit.RateSpec) { s.Per = 0 }), code: "E145", path: "per"},
		"first hit, strict": {spec: window("fixed_window", func(s *limit.RateSpec) { s.Align, s.Consistency = "first_hit", "strict" }),
			code: "E158", path: "align"},
		"first hit of a year":  {spec: window("fixed_window", func(s *limit.RateSpec) { s.Align, s.Per = "first_hit", 184*24*time.Hour }), code: "E145", path: "per"},
		"no lease":             {spec: limit.RateSpec{Algorithm: "concurrency", Limit: 3}, code: "E153", path: "lease"},
		"a lease of no length": {spec: limit.RateSpec{Algorithm: "concurrency", Limit: 3, Lease: time.Millisecond}, code: "E145", path: "lease"},
		"window of a lease":    {spec: limit.RateSpec{Algorithm: "concurrency", Limit: 3, Lease: time.Second, Per: time.Second}, code: "E147", path: "per"},
	} {
		t.Run(name, func(t *testing.T) {
			doc := limit.Document{Namespace: "test", Rules: []limit.RuleSpec{{
				Name: "rule", Margin: limit.MarginSpec{SoftPercent: tc.soft}, Rates: []limit.RateSpec{tc.spec},
			}}}
			set, problems := limit.Compile(doc)
			if set != nil || len(problems) != 1 || len(problems[0]) != 1 {
				t.Fatalf("Compile = %v, %v, want no set and one problem", set, problems)
			}
			if p := problems[0][0]; p.Code != tc.code || p.Path != "rules[0].rates[0]."+tc.path || p.Hint == "" && tc.code != "E143" {
				t.Errorf("problem %s %v, hint %q; want %s at %s, with a hint", p.Code, p, p.Hint, tc.code, tc.path)
			}
		})
	}
}

// What is compiled of each algorithm.
func TestCompiledRates(t *testing.T) {
	for name, tc := range map[string]struct {
		spec                    limit.RateSpec
		name                    string
		limit, ceiling          uint64
		window, width           time.Duration
		slices, span            int
		drain                   limit.Drain
		exact, bucket, isLeased bool
	}{
		"token bucket": {
			spec: limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5)},
			name: "token_bucket", limit: 10, ceiling: 11, window: 2 * time.Second, width: 50 * time.Millisecond, slices: 40, span: 40,
			drain: limit.Drain{Refill: 5, Per: time.Second, Most: 22, Width: 50 * time.Millisecond}, exact: true, bucket: true,
		},
		"with more at first": {
			spec: limit.RateSpec{Name: "burst", Algorithm: "token_bucket", Capacity: 10, Refill: limit.Flow{Units: 7, Per: 3 * time.Second}, Initial: 15},
			name: "burst", limit: 15, ceiling: 16, window: 4300 * time.Millisecond, width: 100 * time.Millisecond, slices: 43, span: 43,
			drain: limit.Drain{Refill: 7, Per: 3 * time.Second, Floor: 5, Most: 27, Width: 100 * time.Millisecond}, exact: true, bucket: true,
		},
		"fast bucket": {
			spec: limit.RateSpec{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5000)},
			name: "token_bucket", limit: 10, ceiling: 11, window: 25 * time.Millisecond, width: 25 * time.Millisecond, slices: 1, span: 1,
			drain: limit.Drain{Refill: 5000, Per: time.Second, Most: 22, Width: 25 * time.Millisecond}, exact: true, bucket: true,
		},
		"queue that may wait for two": {
			spec: limit.RateSpec{Algorithm: "leaky_bucket", Capacity: 10, Outflow: perSecond(5), Queue: true, MaxWait: 400 * time.Millisecond},
			name: "leaky_bucket", limit: 10, ceiling: 3, window: 2 * time.Second, width: 50 * time.Millisecond, slices: 40, span: 40,
			drain: limit.Drain{Refill: 5, Per: time.Second, Most: 22, Width: 50 * time.Millisecond}, exact: true, bucket: true,
		},
		"log": {
			spec: limit.RateSpec{Algorithm: "sliding_log", Limit: 2, Per: time.Minute},
			name: "1m", limit: 2, ceiling: 2, window: time.Minute, width: 1500 * time.Millisecond, slices: 40, span: 40, exact: true,
		},
		"first hit": {
			spec: limit.RateSpec{Algorithm: "fixed_window", Limit: 20, Per: time.Minute, Align: "first_hit"},
			name: "1m", limit: 20, ceiling: 22, window: time.Minute, width: 1500 * time.Millisecond, slices: 40, span: 80, exact: true,
		},
		"concurrency": {
			spec: limit.RateSpec{Algorithm: "concurrency", Limit: 20, Lease: 30 * time.Second},
			name: "concurrency", limit: 20, ceiling: 22, window: 30 * time.Second, width: 750 * time.Millisecond, slices: 40, span: 40, isLeased: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set, problems := limit.Compile(limit.Document{Namespace: "test", Rules: []limit.RuleSpec{{
				Name: "rule", Margin: limit.MarginSpec{SoftPercent: 10}, Rates: []limit.RateSpec{tc.spec},
			}}})
			if problems != nil {
				t.Fatal(problems[0])
			}
			r := set.Rules()[0].Rates[0]
			if r.Name != tc.name || r.Limit != tc.limit || r.Ceiling != tc.ceiling || r.Window != tc.window || r.Width != tc.width ||
				r.Slices != tc.slices || r.Span != tc.span || r.Drain != tc.drain || r.Exact() != tc.exact || r.Bucket() != tc.bucket ||
				(r.Lease > 0) != tc.isLeased || r.Policy != "rule."+tc.name {
				t.Errorf("compiled %+v, exact %v; want %+v", r, r.Exact(), tc)
			}
		})
	}
}

// Tenants' multipliers leave the slices alone, whatever comes out of them.
func TestBucketsOfTenants(t *testing.T) {
	set, problems := limit.Compile(limit.Document{
		Namespace: "test",
		Tenants:   map[string]limit.TenantSpec{"gold": {Multiply: 10}, "half": {Multiply: 0.5}, "third": {Multiply: 0.3333}},
		Rules: []limit.RuleSpec{{
			Name: "rule", TierFrom: "tenant",
			Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(5), Initial: 14}},
		}},
	})
	if problems != nil {
		t.Fatal(problems[0])
	}
	for tenant, want := range map[string]struct {
		limit uint64
		drain limit.Drain
	}{
		"":      {14, limit.Drain{Refill: 5, Per: time.Second, Floor: 4, Most: 24}},
		"gold":  {140, limit.Drain{Refill: 50, Per: time.Second, Floor: 40, Most: 240}},
		"half":  {7, limit.Drain{Refill: 5, Per: 2 * time.Second, Floor: 2, Most: 12}},
		"third": {5, limit.Drain{Refill: 3333, Per: 2000 * time.Second, Floor: 1, Most: 9}},
	} {
		req := set.Namespace("test").NewRequest()
		req.Set("tenant", tenant)
		r := req.Rules()[0].Rates[0]
		want.drain.Width = 50 * time.Millisecond
		if r.Limit != want.limit || r.Ceiling != want.limit || r.Drain != want.drain || r.Width != want.drain.Width {
			t.Errorf("%q: limit %d, ceiling %d, drain %+v; want %+v", tenant, r.Limit, r.Ceiling, r.Drain, want)
		}
		req.Release()
	}
}

// What is refilled is multiplied exactly, or the multiplier is refused.
func TestMultipliersOfRefills(t *testing.T) {
	const day = 24 * time.Hour
	flow := func(units uint64, per time.Duration) limit.Flow { return limit.Flow{Units: units, Per: per} }
	for name, tc := range map[string]struct {
		capacity uint64
		refill   limit.Flow
		by       float64
		want     limit.Flow
		code     string
	}{
		"more":                  {10, perSecond(5), 3, perSecond(15), ""},
		"no fraction is left":   {10, flow(5, 3*time.Second), 1.2, flow(6, 3*time.Second), ""},
		"seven digits":          {10, perSecond(7), 0.1234567, flow(7*1234567, 1e7*time.Second), ""},
		"ten digits":            {1000, perSecond(1), 0.0123456789, limit.Flow{}, "E197"},
		"a shorter time":        {10, perSecond(limit.MaxUnits - 2), 4, flow((limit.MaxUnits-2)/2, 125*time.Millisecond), ""},
		"too many units":        {10, perSecond(limit.MaxUnits - 1), 0.3, limit.Flow{}, "E197"},
		"a longer time":         {4, flow(3, 90*day), 0.25, flow(3, 360*day), ""},
		"units and time halved": {8, flow(9, 300*day), 0.25, flow(1, 300*day/9*4), ""},
		"nothing is left":       {400, perSecond(5), 0.001, limit.Flow{}, "E196"},
	} {
		set, problems := limit.Compile(limit.Document{
			Namespace: "test", Tenants: map[string]limit.TenantSpec{"t": {Multiply: tc.by}},
			Rules: []limit.RuleSpec{{Name: "rule", TierFrom: "tenant", Rates: []limit.RateSpec{{Algorithm: "token_bucket", Capacity: tc.capacity, Refill: tc.refill}}}},
		})
		if tc.code != "" {
			if set != nil || len(problems[0]) != 1 || problems[0][0].Code != tc.code || problems[0][0].Path != "rules[0].tier_from" {
				t.Errorf("%s: %v, want %s", name, problems, tc.code)
			}
			continue
		}
		if problems != nil {
			t.Errorf("%s: %v", name, problems)
			continue
		}
		req := set.Namespace("test").NewRequest()
		req.Set("tenant", "t")
		if d := req.Rules()[0].Rates[0].Drain; d.Refill != tc.want.Units || d.Per != tc.want.Per {
			t.Errorf("%s: %d in %v, want %+v", name, d.Refill, d.Per, tc.want)
		}
		req.Release()
	}
}

// An override that comes to no whole number of units is as near as can be.
func TestOverriddenRefills(t *testing.T) {
	set := compileRules(t, limit.RuleSpec{Name: "a", Rates: []limit.RateSpec{{Name: "b", Algorithm: "token_bucket", Capacity: 1_000_003, Refill: perSecond(5)}}})
	for _, other := range []uint64{0, 1, 17, 999_983, 1_000_003 * 7, limit.MaxUnits - 1, math.MaxUint64} {
		req := set.Namespace("test").NewRequest()
		req.Override("a.b", other)
		r := req.RateFor(set.Rules()[0].Rates[0])
		got, want := float64(r.Drain.Refill)/r.Drain.Per.Seconds(), 5*float64(min(other, limit.MaxUnits))/1_000_003
		if r.Limit != min(other, limit.MaxUnits) || !r.Bucket() || other > 0 && math.Abs(got/want-1) > 1e-3 {
			t.Errorf("a limit of %d: %d, refilled by %v a second, want %v", other, r.Limit, got, want)
		}
		req.Release()
	}
}

func TestWarningOfBucketsThatEmptyWithinASlice(t *testing.T) {
	set := compileRules(t, limit.RuleSpec{Name: "api", MinGap: 10 * time.Millisecond, Rates: []limit.RateSpec{
		{Name: "slow", Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(400)},
		{Name: "fast", Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(401)},
		{Name: "here", Algorithm: "token_bucket", Capacity: 10, Refill: perSecond(401), Scope: "edge"},
	}})
	ws := set.Warnings()[0]
	if len(ws) != 2 || ws[0].Code != "W204" || ws[0].Path != "rules[0].rates[1].capacity" || ws[1].Path != "rules[0].min_gap" || ws[0].Hint == "" {
		t.Errorf("warnings %v, want one of the fast bucket and one of the gap", ws)
	}
}
