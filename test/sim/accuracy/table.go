package accuracy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spillgate/spillgate/test/sim/scenarios"
)

// Run measures the rows and writes them as Markdown.
func Run(o Options, out io.Writer) error {
	all, err := load(text)
	if err != nil {
		return err
	}
	sections, a18, err := wanted(all, o.Only)
	if err != nil {
		return err
	}
	if a18 && o.Algorithm != "" {
		if len(o.Only) > 0 {
			return errors.New("-rows A18: it compares algorithms with each other, so not with -algorithm")
		}
		a18 = false
	}
	figures, err := runAll(o, sections)
	if err != nil {
		return err
	}
	var t table
	for i, s := range sections {
		t.section(s, figures[i])
	}
	if a18 {
		estimators, reach, err := compareEstimators(asked)
		if err != nil {
			return err
		}
		t.estimators(estimators, reach, asked)
	}
	fmt.Fprintf(out, "%s%s", t.summary(), t.text.String())
	return nil
}

// table is what is written, and what misses its target.
type table struct {
	text    strings.Builder
	targets int
	missed  []string
}

func (t *table) summary() string {
	if t.targets == 0 {
		return ""
	}
	if len(t.missed) == 0 {
		return fmt.Sprintf("All %d targets are reached.\n", t.targets)
	}
	return fmt.Sprintf("Of %d targets %d are missed: %s.\n", t.targets, len(t.missed), strings.Join(t.missed, "; "))
}

func (t *table) section(s section, figures []measured) {
	p := func(format string, args ...any) { fmt.Fprintf(&t.text, format, args...) }
	p("\n## %s\n\n", s.Title)
	if s.About != "" {
		p("%s\n\n", s.About)
	}
	strategies := s.strategies()
	head, rule := "| | scenario, limit | target |", "|---|---|---|"
	for _, strategy := range strategies {
		columns := strategy + ": over, util, wd"
		if strategy == "adaptive" {
			columns = "adaptive: over | util | wd | its messages, of loose | bytes a second, an edge | naive, times as far over"
		}
		head, rule = head+" "+columns+" |", rule+strings.Repeat("---|", 1+strings.Count(columns, "|"))
	}
	p("%s\n%s\n", head, rule)
	for i, r := range s.Rows {
		p("| %s | %s | %s |", r.number(), r.words(), r.target())
		for _, strategy := range strategies {
			w := figures[i][strategy]
			if strategy == "adaptive" {
				p(" %s |", strings.Join(t.adaptive(&r, figures[i]), " | "))
				continue
			}
			over, util := r.over(w), percent(w.util)
			if strategy == "strict" {
				over = t.judge(&r, "strict over", over, w.over > 0)
				if r.Strict != nil {
					util = t.judge(&r, "strict util", util, below(100*w.util, *r.Strict))
				}
			}
			p(" %s, %s, %s |", over, util, r.wd(w))
		}
		p("\n")
	}
}

// adaptive is the cells of the strategy that the targets are for.
func (t *table) adaptive(r *row, m measured) []string {
	w := m["adaptive"]
	over, util, wd := r.over(w), percent(w.util), r.wd(w)
	for _, target := range []struct {
		want *float64
		got  float64
	}{{r.Over, 100 * w.over}, {r.More, w.over * float64(r.Limit.Limit)}, {r.Above, 1e6 * w.above}} {
		if target.want != nil {
			over = t.judge(r, "over", over, below(*target.want, target.got))
		}
	}
	if r.Util != nil {
		util = t.judge(r, "util", util, below(100*w.util, *r.Util))
	}
	switch {
	case r.WD != nil:
		wd = t.judge(r, "wd", wd, below(*r.WD, 100*w.wd))
	case r.Denied != nil:
		wd = t.judge(r, "wd", wd, below(*r.Denied, 1e6*w.denied))
	}
	naive := "–"
	if n := m["naive"]; n != nil && w.over > 0 {
		naive = fmt.Sprintf("%.1f", n.over/w.over)
	}
	if r.Naive > 0 {
		naive = t.judge(r, "A17", naive, m["naive"].over < r.Naive*w.over)
	}
	messages := "–"
	if l := m["loose"]; l != nil {
		messages = fmt.Sprintf("%.2f ×", w.messages/l.messages)
	}
	return []string{over, util, wd, messages, fmt.Sprintf("%.0f", w.rate), naive}
}

// judge shows what misses its target in bold, and remembers it.
func (t *table) judge(r *row, what, cell string, missed bool) string {
	t.targets++
	if !missed {
		return cell
	}
	of := cell
	if r.Scenario != "" {
		of = r.words() + ": " + cell
	}
	t.missed = append(t.missed, fmt.Sprintf("%s %s (%s)", r.number(), what, of))
	return "**" + cell + "**"
}

// below says that x is less than y, and not by rounding alone.
func below(x, y float64) bool { return x < y-1e-9*math.Max(1, math.Abs(y)) }

func percent(x float64) string { return fmt.Sprintf("%.1f", 100*x) }

// over is how far the row was over: in percent, in requests, or per million.
func (r *row) over(w *worst) string {
	switch {
	case r.More != nil:
		return fmt.Sprintf("+%.0f", w.over*float64(r.Limit.Limit))
	case r.scenario.Keys > 1:
		return fmt.Sprintf("%s; %.0f per million", percent(w.over), 1e6*w.above)
	}
	return percent(w.over)
}

func (r *row) wd(w *worst) string {
	if r.scenario.Keys > 1 {
		return fmt.Sprintf("%s; %.0f per million", percent(w.wd), 1e6*w.denied)
	}
	return percent(w.wd)
}

func (r *row) number() string {
	switch {
	case r.of != "":
		return fmt.Sprintf("%s (%s)", r.ID, r.of)
	case r.ID != strings.ToUpper(r.ID): // a word that -rows knows
		return "–"
	}
	return r.ID
}

// words are what is measured, as the flags of -scenario say it.
func (r *row) words() string {
	s := fmt.Sprintf("%s, %v", r.Scenario, r.Limit)
	if r.Regions != 5 || r.Edges != 2 {
		s += fmt.Sprintf(", %d regions of %d edges", r.Regions, r.Edges)
	}
	for _, c := range described(r.Conditions) {
		s += ", " + c
	}
	return s
}

// described is what is not as usual.
func described(c scenarios.Conditions) (out []string) {
	say := func(is bool, format string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(c.Interval > 0, "interval %v", c.Interval)
	say(c.OneWay > 0, "one way %v", c.OneWay)
	say(c.Jitter != 0, "jitter %v %%", 100*max(0, c.Jitter))
	say(c.ClockOffset > 0, "clocks off by up to %v", c.ClockOffset)
	say(c.Uncorrected, "not corrected")
	say(c.Loss > 0, "loss %v %%", 100*c.Loss)
	say(c.Duplicates > 0, "duplicates %v %%", 100*c.Duplicates)
	say(c.Reordering > 0, "reordering %v %%", 100*c.Reordering)
	say(c.Processing > 0, "processing %v a frame", c.Processing)
	say(c.Costs > 1, "costs 1 to %d", c.Costs)
	say(c.Rates > 1, "three rates")
	say(c.CrashEvery > 0, "an edge crashes every %v", c.CrashEvery)
	say(c.ChurnEvery > 0, "an edge leaves every %v", c.ChurnEvery)
	say(c.Retry == scenarios.AtOnce, "three retries at once")
	say(c.Retry == scenarios.AfterWait, "three retries after the Retry-After")
	say(c.Surge > 0, "surge %v", c.Surge)
	say(c.OnPartition != "", "on_partition %s", c.OnPartition)
	say(c.Budget > 0, "budget %v kB/s", float64(c.Budget)/1000)
	return out
}

// target is what the row must reach, in words.
func (r *row) target() string {
	var out []string
	say := func(x *float64, format string) {
		if x != nil {
			out = append(out, fmt.Sprintf(format, *x))
		}
	}
	say(r.Over, "over ≤ %.4g")
	say(r.More, "over ≤ +%.0f requests")
	say(r.Above, "over ≤ %.0f per million")
	say(r.Util, "util ≥ %.4g")
	say(r.WD, "wd ≤ %.4g")
	say(r.Denied, "wd ≤ %.0f per million")
	if r.Naive > 0 {
		out = append(out, fmt.Sprintf("naive ≥ %v ×", r.Naive))
	}
	if len(out) == 0 {
		return "–"
	}
	return strings.Join(out, ", ")
}
