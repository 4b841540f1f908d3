package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
)

// caseResult is what became of a case.
type caseResult struct {
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Name     string        `json:"name"`
	Passed   bool          `json:"passed"`
	Steps    int           `json:"steps"`
	Requests int           `json:"requests"`
	Failures []stepFailure `json:"failures,omitempty"`
}

// stepFailure is a step that came out otherwise than expected.
type stepFailure struct {
	Line        int          `json:"line"`
	Step        int          `json:"step"` // from 1
	Want        verdicts     `json:"want"`
	Got         verdicts     `json:"got"`
	Differences []difference `json:"differences"`
	Decision    decisionJSON `json:"decision"`

	step *configs.TestStep
	why  *decision
	at   time.Time // of why
}

// decisionJSON is the first decision that was not expected.
type decisionJSON struct {
	Request      int       `json:"request"` // from 1
	At           time.Time `json:"at"`
	Allowed      bool      `json:"allowed"`
	Zone         string    `json:"zone"`
	Rule         string    `json:"rule"`
	Policy       string    `json:"policy"`
	Limit        uint64    `json:"limit"`
	Cost         uint64    `json:"cost"`
	Remaining    uint64    `json:"remaining"`
	RetryAfterMS int64     `json:"retry_after_ms"`
	DelayMS      int64     `json:"delay_ms,omitempty"`
	NearLimit    bool      `json:"near_limit,omitempty"`
	Local        uint64    `json:"local"`
	Merged       uint64    `json:"merged"`
	AgeMS        int64     `json:"age_ms"` // -1: never heard of
	Regions      int       `json:"regions"`
}

func resultOf(test *configs.RuleTest, c *configs.TestCase, outcomes []outcome) *caseResult {
	result := &caseResult{File: test.File, Line: c.Line, Name: c.Name, Passed: true, Steps: len(c.Steps)}
	for i := range c.Steps {
		step := &c.Steps[i]
		if step.Act == configs.ActAsk {
			result.Requests += step.Times
		}
		found, why := outcomes[i].differences(step)
		if len(found) == 0 {
			continue
		}
		result.Passed = false
		at := c.Start.Add(why.at)
		result.Failures = append(result.Failures, stepFailure{
			Line: step.Line, Step: i + 1, Want: verdicts{step.Allow, step.Deny}, Got: outcomes[i].got, Differences: found,
			Decision: decisionJSON{
				Request: why.index, At: at, Allowed: why.Allowed, Zone: why.Zone.String(), Rule: why.rule(), Policy: why.policy(),
				Limit: why.Limit, Cost: why.Cost, Remaining: why.Remaining, RetryAfterMS: milliseconds(why.RetryAfter),
				DelayMS: milliseconds(why.Delay), NearLimit: why.Near,
				Local: why.Basis.Local, Merged: why.Basis.Merged, AgeMS: milliseconds(why.Basis.Age), Regions: why.Basis.Regions,
			},
			step: step, why: why, at: at,
		})
	}
	return result
}

// milliseconds rounds up; what is negative says never.
func milliseconds(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return roundLike(time.Millisecond, d).Milliseconds()
}

// textReport shows results as go test does.
type textReport struct {
	w        io.Writer
	requests int
}

func (t *textReport) result(c *caseResult) error {
	t.requests += c.Requests
	var b strings.Builder
	word := "ok  "
	if !c.Passed {
		word = "FAIL"
	}
	fmt.Fprintf(&b, "%s  %s: %s (%s, %s)\n", word, c.File, c.Name, count(c.Steps, "step"), count(c.Requests, "request"))
	for i := range c.Failures {
		c.Failures[i].write(&b, c.File)
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

func (f *stepFailure) write(b *strings.Builder, file string) {
	fmt.Fprintf(b, "    %s:%d: step %d at %v, %s\n", file, f.Line, f.Step, f.step.At, describe(f.step))
	for _, d := range f.Differences {
		fmt.Fprintf(b, "        %s: want %s, got %s\n", d.What, d.Want, d.Got)
	}
	d := f.why
	became := ", was " + d.verdict()
	if f.step.Act != configs.ActAsk {
		became = ", left it so"
	}
	fmt.Fprintf(b, "      %s %d, at %v (%s)%s\n", noun(f.step), d.index, d.at, f.at.Format(time.RFC3339Nano), became)
	if d.Rule == nil {
		b.WriteString("        no rule limits it\n")
		return
	}
	fmt.Fprintf(b, "        rule %s, policy %s, limit %d, remaining %d, zone %s", d.rule(), d.policy(), d.Limit, d.Remaining, d.Zone)
	if d.RetryAfter > 0 {
		fmt.Fprintf(b, ", retry after %v", roundLike(time.Millisecond, d.RetryAfter))
	}
	if d.Delay > 0 {
		fmt.Fprintf(b, ", delayed by %v", roundLike(time.Millisecond, d.Delay))
	}
	if d.Near {
		b.WriteString(", near its limit")
	}
	fmt.Fprintf(b, "\n        %s\n", d.basis())
}

// describe is a step's request in words.
func describe(step *configs.TestStep) string {
	text := count(step.Times, noun(step))
	if step.Act != configs.ActAsk {
		text += fmt.Sprintf(" of %d", step.Cost)
	}
	if step.Every > 0 {
		text += fmt.Sprintf(" every %v", step.Every)
	}
	text += " to " + step.Edge
	if len(step.Attributes) > 0 {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(step.Attributes)) {
			words = append(words, name+": "+step.Attributes[name])
		}
		text += " {" + strings.Join(words, ", ") + "}"
	}
	return text
}

// noun is what a step makes.
func noun(step *configs.TestStep) string {
	switch step.Act {
	case configs.ActReport:
		return "report"
	case configs.ActGiveBack:
		return "refund"
	}
	return "request"
}

func (t *textReport) sum(passed, failed int) error {
	var err error
	if failed > 0 {
		_, err = fmt.Fprintf(t.w, "FAIL: %d of %s\n", failed, count(passed+failed, "case"))
	} else {
		_, err = fmt.Fprintf(t.w, "ok: %s, %s\n", count(passed, "case"), count(t.requests, "request"))
	}
	return err
}

// objectReport shows all results as one object.
type objectReport struct {
	w     io.Writer
	as    *cli.Output
	cases []*caseResult
}

func (o *objectReport) result(c *caseResult) error {
	o.cases = append(o.cases, c)
	return nil
}

func (o *objectReport) sum(passed, failed int) error {
	return o.as.Write(o.w, struct {
		Passed int           `json:"passed"`
		Failed int           `json:"failed"`
		Cases  []*caseResult `json:"cases"`
	}{passed, failed, o.cases}, nil)
}
