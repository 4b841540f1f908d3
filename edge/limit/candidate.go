package limit

import (
	"cmp"
	"fmt"
	"strings"
)

// candidateSuffix ends the name of a candidate, after its rule's.
const candidateSuffix = ".candidate"

// candidatePath is where a candidate stands. from is the Index of the document's first rule.
func candidatePath(r *Rule, from int) string {
	return indexed("rules", r.Live.Index-from) + ".candidate"
}

// candidates compiles what is tried beside rules: each a rule of its own, in shadow and in no group, that is
// asked where the one applies that it is a candidate of. first are the places of the names in the document.
func (c *compiler) candidates(doc *Document, from int, first map[string]int) {
	for i := range doc.Rules {
		spec := &doc.Rules[i]
		if spec.Candidate == nil {
			continue
		}
		live, tried := c.set.rules[from+i], spec.Candidate
		path := indexed("rules", i) + ".candidate"
		trial := *spec
		trial.Name, trial.Mode, trial.Candidate, trial.TellKeys = spec.Name+candidateSuffix, Shadow.String(), nil, false
		trial.Rates, trial.Margin, trial.Consistency = tried.Rates, tried.Margin, cmp.Or(tried.Consistency, spec.Consistency)
		if tried.Key != nil {
			trial.Key = tried.Key
		}
		// What is only done to those who are denied, or wait.
		trial.OnLimit.Defer, trial.Penalty, trial.MaxDelay, trial.NearLimitPercent = DeferSpec{}, Penalty{}, 0, 0
		switch _, taken := first[trial.Name]; {
		case spec.Allow || spec.Deny:
			c.problem(path, "E320", "leave it out", "a rule that allows or denies all has no limits that others could take the place of")
			continue
		case len(tried.Rates) == 0:
			c.problem(path+".rates", "E132", "such as: rates: [{limit: 100, per: 1m}]", "there is no rate")
			continue
		case tried.Mode != "" && tried.Mode != trial.Mode:
			c.problem(path+".mode", "E320", "leave it out; to have the limits in force write them in the place of the rule's", "%q: a candidate denies nobody", tried.Mode)
			continue
		case tried.Margin.Elastic.Parent != "":
			c.problem(path+".margin.elastic.parent", "E320", "a signal: while: capacity.api < 70%", "a candidate borrows from no rule")
			continue
		case nameForm.MatchString(spec.Name) && !nameForm.MatchString(trial.Name):
			c.problem(path, "E320", fmt.Sprintf("a name of at most %d letters", 63-len(candidateSuffix)), "the name of the rule is too long for its candidate's: %s", trial.Name)
			continue
		case taken:
			c.problem(path, "E112", "call that rule otherwise", "%q is the name of rule %d, and would be this candidate's", trial.Name, first[trial.Name]+1)
			continue
		}
		problems, warnings := len(c.problems), len(c.warnings)
		r := c.rule(path, &trial)
		// What is as the rule has it was told of that.
		c.problems = append(c.problems[:problems], candidates(c.problems[problems:], path)...)
		c.warnings = append(c.warnings[:warnings], candidates(c.warnings[warnings:], path)...)
		r.Live, live.Candidate = live, r
		for _, v := range r.variants {
			v.Live = live
		}
		for _, v := range live.variants {
			v.Candidate = r
		}
	}
}

// candidates are the problems with what a candidate itself says.
func candidates(all Problems, path string) (own Problems) {
	for _, p := range all {
		for _, word := range []string{".rates", ".key", ".margin", ".consistency"} {
			if strings.HasPrefix(p.Path, path+word) {
				own = append(own, p)
			}
		}
	}
	return own
}
