package configs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestTokens(t *testing.T) {
	ada, adas := NewToken()
	ci, cis := NewToken()
	text := fmt.Sprintf(`schema: spillgate/tokens/v1
tokens:
- {name: ada, role: admin, sha256: %s}
- {name: ci, role: editor, namespaces: [shop, acme], expires: 2027-01-31T00:00:00Z, sha256: %q}
`, adas, cis)
	tokens, err := ParseTokens("tokens.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	before, after := time.Date(2027, 1, 30, 23, 59, 59, 0, time.UTC), time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	if got := TokenOf(tokens, ada, after); got == nil || got.Name != "ada" || !got.Role.Allows(RoleAdmin) || !got.MayTouch("any") || !got.MayTouch("") {
		t.Errorf("ada's is %+v", got)
	}
	got := TokenOf(tokens, ci, before)
	if got == nil || got.Role.Allows(RoleAdmin) || !got.Role.Allows(RoleEditor) || !got.Role.Allows(RoleViewer) || !got.MayTouch("acme") || got.MayTouch("bank") || got.MayTouch("") {
		t.Errorf("ci's is %+v", got)
	}
	if got := TokenOf(tokens, ci, after); got != nil {
		t.Errorf("what has expired is %+v", got)
	}
	for _, secret := range []string{"", adas, ada + " ", strings.ToUpper(ada)} {
		if got := TokenOf(tokens, secret, before); got != nil {
			t.Errorf("%q is taken for %s's", secret, got.Name)
		}
	}
	tokens, err = ParseTokens("tokens.yaml", []byte("schema: spillgate/tokens/v1\ntokens:\n- {name: prom, role: viewer, certificate: prom.example, expires: 2027-01-31T00:00:00Z}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := TokenOfCertificate(tokens, []string{"", "other", "prom.example"}, before); got == nil || got.Name != "prom" {
		t.Errorf("of a certificate it is %+v", got)
	}
	for _, names := range [][]string{nil, {""}, {"prom"}} {
		if got := TokenOfCertificate(tokens, names, before); got != nil {
			t.Errorf("of a certificate of %q it is %+v", names, got)
		}
	}
	if got := TokenOfCertificate(tokens, []string{"prom.example"}, after); got != nil {
		t.Errorf("what has expired is %+v", got)
	}
	if Role("root").Allows(RoleViewer) || Role("").Allows(RoleViewer) {
		t.Error("what is no role may look")
	}
}

func TestBadTokens(t *testing.T) {
	secret, hash := NewToken()
	head := "schema: spillgate/tokens/v1\ntokens:\n"
	for _, c := range []struct{ name, text, says string }{
		{"empty", "", "E004"},
		{"none", "schema: spillgate/tokens/v1\ntokens: []\n", "0 tokens"},
		{"rules", "schema: spillgate/v1\nnamespace: a\n", "spillgate/tokens/v1"},
		{"no role", head + "- {name: a, sha256: " + hash + "}", "role is missing"},
		{"bad role", head + "- {name: a, role: root, sha256: " + hash + "}", "viewer, editor or admin"},
		{"the secret", head + "- {name: a, role: admin, sha256: " + secret + "}", "stands in no file"},
		{"short", head + "- {name: a, role: admin, sha256: 12}", "64 hexadecimal digits"},
		{"no time", head + "- {name: a, role: admin, expires: tomorrow, sha256: " + hash + "}", "is no time"},
		{"neither", head + "- {name: a, role: admin}", "one of sha256 and certificate"},
		{"both", head + "- {name: a, role: admin, certificate: a, sha256: " + hash + "}", "one of sha256 and certificate"},
		{"one certificate", head + "- {name: a, role: admin, certificate: c}\n- {name: b, role: viewer, certificate: c}", "twice"},
		{"no namespaces", head + "- {name: a, role: admin, namespaces: [], sha256: " + hash + "}", "for all"},
		{"twice", head + "- {name: a, role: admin, sha256: " + hash + "}\n- {name: b, role: admin, sha256: " + hash + "}", "same secret"},
		{"one name", head + "- {name: a, role: admin, sha256: " + hash + "}\n- {name: a, role: admin, sha256: " + strings.Repeat("a", 64) + "}", "twice"},
		{"a typo", head + "- {name: a, rolle: admin, sha256: " + hash + "}", `did you mean "role"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens, err := ParseTokens("tokens.yaml", []byte(c.text))
			var mistakes *RulesError
			if tokens != nil || !errors.As(err, &mistakes) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("ParseTokens = %v, %v, want a mistake that says %q", tokens, err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the message tells the secret: %v", err)
			}
		})
	}
}
