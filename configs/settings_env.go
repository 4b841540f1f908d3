package configs

import (
	"regexp"
	"strings"
)

// serviceLink is what Kubernetes sets for every service of the namespace, so
// also for one that is called spillgate or spillgate-edge.
var serviceLink = regexp.MustCompile(`^(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_.+)?)$`)

// unknownVariables are the variables of the environment that say that they set
// something, and do not. Those of the other daemon may stand there too: one
// env_file often serves both.
func unknownVariables(environ []string, settings []setting) []Mistake {
	known := map[string]bool{EnvPrefix + "_CONFIG": true, AdminTokenVariable: true}
	for _, table := range [][]setting{edgeTable(&EdgeSettings{}, &secretFrom{}), aggregatorTable(&AggregatorSettings{}, &secretFrom{})} {
		for i := range table {
			known[table[i].env()] = true
		}
	}
	candidates := []string{"CONFIG"}
	for i := range settings {
		candidates = append(candidates, strings.TrimPrefix(settings[i].env(), EnvPrefix+"_"))
	}
	var mistakes []Mistake
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		rest, ours := strings.CutPrefix(name, EnvPrefix+"_")
		if !ours || value == "" || known[name] || serviceLink.MatchString(rest) {
			continue // an empty variable sets nothing, whatever its name
		}
		m := Mistake{File: "environment " + clip(name), Code: "E007", Detail: "no setting has this name", Hint: "unset it; `config effective` lists what there is"}
		if word := suggest(strings.ToUpper(rest), candidates); word != "" {
			m.Hint = "did you mean " + EnvPrefix + "_" + word + "?"
		}
		mistakes = append(mistakes, m)
	}
	return mistakes
}
