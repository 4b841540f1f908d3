package load

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spillgate/spillgate/test/bench/latency"
)

// report is what a load came to, as it is told. Names with _ms are milliseconds.
type report struct {
	Load        string   `json:"load"`
	Targets     []string `json:"targets"`
	Rate        float64  `json:"rate"`
	Tenants     int      `json:"tenants"`
	Connections int      `json:"connections"`
	Seconds     float64  `json:"seconds"`     // that it lasted, until the last answer
	Interrupted bool     `json:"interrupted"` // it ended before its time
	CutShort    uint64   `json:"cut_short"`   // requests that were under way then, which count nowhere else

	row
	Errors []kind `json:"errors"` // by kind, most first
	Unsent uint64 `json:"not_sent"`
	Late   times  `json:"sent_late"` // how long after they were due requests were sent

	Quiet row `json:"quiet"` // while requests came at the rate
	Surge row `json:"surge"` // while more came

	Top  []row `json:"top_tenants"` // those who asked the most
	Rest row   `json:"other_tenants"`
}

// row is what became of some of the requests.
type row struct {
	Of       string  `json:"of,omitempty"`
	Asked    uint64  `json:"asked"`
	Answered uint64  `json:"answered"`
	Admitted uint64  `json:"admitted"`
	PerS     float64 `json:"admitted_per_s,omitempty"` // over all the time; of a part of it none
	Deferred uint64  `json:"deferred"`                 // denied, to be done later (202)
	Denied   uint64  `json:"denied"`
	Failed   uint64  `json:"failed"`
	Latency  times   `json:"latency"` // of those answered, from when they were due
}

type times struct {
	P50 millis `json:"p50_ms"`
	P90 millis `json:"p90_ms"`
	P99 millis `json:"p99_ms"`
	Max millis `json:"max_ms"`
}

type kind struct {
	Kind   string `json:"kind"`
	Count  uint64 `json:"count"`
	Detail string `json:"detail,omitempty"` // of the first
}

// millis is a time that JSON tells in milliseconds.
type millis time.Duration

func (m millis) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%.3f", float64(m)/float64(time.Millisecond)), nil
}

func (m millis) String() string {
	switch d := time.Duration(m); {
	case d == 0:
		return "-"
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	}
}

func timesOf(h *latency.Histogram) times {
	return times{millis(h.Quantile(.5)), millis(h.Quantile(.9)), millis(h.Quantile(.99)), millis(h.Max())}
}

func rowOf(of string, t *tally) row {
	r := row{Of: of, Admitted: t.admitted.Load(), Deferred: t.deferred.Load(), Denied: t.denied.Load(), Failed: t.failed.Load(), Latency: timesOf(&t.latency)}
	r.Answered = r.Admitted + r.Deferred + r.Denied
	r.Asked = r.Answered + r.Failed
	return r
}

// over is the row of requests that came in all of so many seconds.
func (r row) over(seconds float64) row {
	r.PerS = math.Round(10*float64(r.Admitted)/max(seconds, 1e-9)) / 10
	return r
}

func newReport(o Options, f *findings, interrupted bool) *report {
	r := &report{
		Load: o.Shape, Rate: o.Rate, Tenants: o.Tenants, Connections: o.Connections,
		Seconds: f.took.Seconds(), Interrupted: interrupted, CutShort: f.cut.Load(), Unsent: f.unsent.Load(), Late: timesOf(&f.late),
		Quiet: rowOf("at the rate", &f.quiet), Surge: rowOf("in the surge", &f.surge),
		Errors: []kind{}, Top: []row{},
	}
	for _, u := range o.Targets {
		r.Targets = append(r.Targets, u.Redacted())
	}
	var all tally
	all.merge(&f.quiet)
	all.merge(&f.surge)
	r.row = rowOf("", &all).over(r.Seconds)
	for name, fault := range f.faults.of { // run is over: nobody adds to it
		r.Errors = append(r.Errors, kind{name, fault.count, fault.detail})
	}
	slices.SortFunc(r.Errors, func(a, b kind) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind)) })
	r.ofTenants(f.tenants, o.Top)
	return r
}

// ofTenants tells the top tenants one by one, and the others together.
func (r *report) ofTenants(tenants []tally, top int) {
	order := make([]int, len(tenants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(tenants[b].asked(), tenants[a].asked()) })
	for _, i := range order[:min(top, len(order))] {
		r.Top = append(r.Top, rowOf(tenant(i), &tenants[i]).over(r.Seconds))
	}
	var rest tally
	for _, i := range order[len(r.Top):] {
		rest.merge(&tenants[i])
	}
	r.Rest = rowOf(fmt.Sprintf("%d others", len(order)-len(r.Top)), &rest).over(r.Seconds)
}

func (r *report) json(w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(r)
}

// text writes the report for people.
func (r *report) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %g a second, %d tenants, %d connections, at %s\n", r.Load, r.Rate, r.Tenants, r.Connections, strings.Join(r.Targets, " "))
	fmt.Fprintf(&b, "%.1f s", r.Seconds)
	if r.Interrupted {
		fmt.Fprintf(&b, ", interrupted, %d requests cut short", r.CutShort)
	}
	fmt.Fprint(&b, "\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	part := func(name string, n uint64) {
		fmt.Fprintf(t, "%s\t%d\t%.1f/s\t%.2f %%\t\n", name, n, float64(n)/max(r.Seconds, 1e-9), 100*float64(n)/float64(max(1, r.Asked)))
	}
	part("asked", r.Asked)
	part("admitted", r.Admitted)
	part("deferred", r.Deferred)
	part("denied", r.Denied)
	part("failed", r.Failed)
	_ = t.Flush() // into a strings.Builder, as all below
	for _, e := range r.Errors {
		fmt.Fprintf(&b, "  %d × %s: %s\n", e.Count, e.Kind, e.Detail)
	}
	fmt.Fprint(&b, "\nlatency of what was answered, from when it was due:\n\n")
	table := []row{r.row}
	table[0].Of = "all"
	if r.Surge.Asked > 0 {
		table = append(table, r.Quiet, r.Surge)
	}
	table = append(table, r.Top...)
	if r.Rest.Asked > 0 {
		table = append(table, r.Rest)
	}
	fmt.Fprint(t, "\tasked\tadmitted\ta second\tdeferred\tdenied\tfailed\tp50\tp90\tp99\tlongest\t\n")
	for _, row := range table {
		l, pace := row.Latency, "-"
		if row.PerS > 0 {
			pace = fmt.Sprintf("%.1f", row.PerS)
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%d\t%d\t%d\t%v\t%v\t%v\t%v\t\n", row.Of, row.Asked, row.Admitted, pace, row.Deferred, row.Denied, row.Failed, l.P50, l.P90, l.P99, l.Max)
	}
	_ = t.Flush()
	fmt.Fprintf(&b, "\nrequests were sent this long after they were due: p50 %v, p99 %v, at most %v; where that is much, -connections are too few, or this machine is too slow to tell\n", r.Late.P50, r.Late.P99, r.Late.Max)
	_, err := io.WriteString(w, b.String())
	return err
}

// targets are named.
func (o *Options) targets() string {
	var names []string
	for _, u := range o.Targets {
		names = append(names, u.Redacted())
	}
	return strings.Join(names, " ")
}
