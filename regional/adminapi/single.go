package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// ruleInfo is one rule of a namespace.
type ruleInfo struct {
	Name string `json:"name"`
	Line int    `json:"line"`
	Rule any    `json:"rule"` // its words, as JSON
}

// rules is GET /admin/v1/namespaces/{namespace}/rules.
func (b *Rulebook) rules(w http.ResponseWriter, r *http.Request) *Problem {
	v, texts, p := b.ruleTexts(r)
	if p != nil {
		return p
	}
	infos := make([]ruleInfo, len(texts))
	for i, t := range texts {
		infos[i] = ruleInfo{t.Name, t.Line, t.Value}
	}
	w.Header().Set("ETag", etag(v))
	writeJSON(w, http.StatusOK, map[string]any{"namespace": v.Namespace, "version": v.Number, "rules": infos})
	return nil
}

// rule is GET /admin/v1/namespaces/{namespace}/rules/{rule}: as YAML, or as JSON.
func (b *Rulebook) rule(w http.ResponseWriter, r *http.Request) *Problem {
	v, texts, p := b.ruleTexts(r)
	if p != nil {
		return p
	}
	i := slices.IndexFunc(texts, func(t configs.RuleText) bool { return t.Name == r.PathValue("rule") })
	if i < 0 {
		return problem(http.StatusNotFound, "GET its rules", fmt.Sprintf("namespace %s has no rule %.80q", v.Namespace, r.PathValue("rule")))
	}
	w.Header().Set("ETag", etag(v))
	w.Header().Set("Vary", "Accept")
	if wantsJSON(r) || texts[i].Text == "" {
		writeJSON(w, http.StatusOK, texts[i].Value)
		return nil
	}
	writeYAML(w, texts[i].Text)
	return nil
}

func (b *Rulebook) ruleTexts(r *http.Request) (*natsrules.Version, []configs.RuleText, *Problem) {
	if p := b.ownFormat(); p != nil {
		return nil, nil, p
	}
	v, p := b.seen(r)
	if p != nil {
		return nil, nil, p
	}
	texts, err := configs.RulesOf(configs.Text{Name: v.Namespace, Namespace: v.Namespace, Text: v.Text})
	if err != nil {
		return nil, nil, invalid(err)
	}
	return v, texts, nil
}

func (b *Rulebook) ownFormat() *Problem {
	if b.format != configs.FormatSpillgate {
		return problem(http.StatusConflict, "GET and PUT the namespace", "rules.format is "+string(b.format)+", which has no rules by name")
	}
	return nil
}

// putRule is PUT /admin/v1/namespaces/{namespace}/rules/{rule}: the body is that rule from now on.
func (b *Rulebook) putRule(w http.ResponseWriter, r *http.Request) *Problem {
	text, p := bodyOf(w, r)
	if p != nil {
		return p
	}
	return b.setRule(w, r, "put rule", text)
}

// removeRule is DELETE /admin/v1/namespaces/{namespace}/rules/{rule}.
func (b *Rulebook) removeRule(w http.ResponseWriter, r *http.Request) *Problem {
	return b.setRule(w, r, "delete rule", "")
}

func (b *Rulebook) setRule(w http.ResponseWriter, r *http.Request, action, text string) *Problem {
	if p := b.ownFormat(); p != nil {
		return p
	}
	name := r.PathValue("rule")
	return b.change(w, r, action, func(_ context.Context, _ *natsrules.Store, was *natsrules.Version) (natsrules.Version, error) {
		if was.Number == 0 || was.Deleted {
			return natsrules.Version{}, problem(http.StatusNotFound, "PUT the namespace", stateOf(was))
		}
		doc := configs.Text{Name: was.Namespace, Namespace: was.Namespace, Text: was.Text}
		if text == "" {
			rules, err := configs.RulesOf(doc)
			if err != nil {
				return natsrules.Version{}, err
			}
			if !slices.ContainsFunc(rules, func(t configs.RuleText) bool { return t.Name == name }) {
				return natsrules.Version{}, problem(http.StatusNotFound, "GET its rules", fmt.Sprintf("namespace %s has no rule %.80q", was.Namespace, name))
			}
		}
		if err := underWay(was); err != nil {
			return natsrules.Version{}, err
		}
		next, err := configs.SetRule(doc, name, text)
		return natsrules.Version{Text: next}, err
	})
}
