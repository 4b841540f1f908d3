package configs

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// TokensSchema is the value of schema: in a file of admin tokens.
const TokensSchema = "spillgate/tokens/v1"

// Role is what somebody may do: each all that the one before may.
type Role string

// The roles.
const (
	RoleViewer Role = "viewer" // look
	RoleEditor Role = "editor" // change rules of namespaces
	RoleAdmin  Role = "admin"  // take namespaces away, read the audit log and profiles
)

var roles = []Role{RoleViewer, RoleEditor, RoleAdmin}

// Allows says that who has the role may do what takes another.
func (r Role) Allows(need Role) bool {
	return slices.Index(roles, r) >= 0 && slices.Index(roles, r) >= slices.Index(roles, need)
}

// Token is who may do what, and the hash of the secret by which he is known, or the name that his
// certificate has.
type Token struct {
	Name        string
	Role        Role
	Namespaces  []string          // nil: all
	SHA256      [sha256.Size]byte // zero: he has a certificate
	Certificate string            // its common name, or one of its DNS names or URIs; "": he has a secret
	Expires     time.Time         // zero: never
}

// MayTouch says that the token is of a namespace; "" is all of them.
func (t *Token) MayTouch(namespace string) bool {
	return t.Namespaces == nil || namespace != "" && slices.Contains(t.Namespaces, namespace)
}

// tokenPrefix begins each secret, so that those who look for leaked ones know it.
const tokenPrefix = "sgt_"

// NewToken makes a secret, of 256 random bits, and the hash that a file of tokens has of it. So
// many need no slow hash.
func NewToken() (secret, hash string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, hex.EncodeToString(sum[:])
}

// maxAdminTokens bounds a file of tokens.
const maxAdminTokens = 1000

// ReadTokens reads who may do what at an admin listener:
//
//	schema: spillgate/tokens/v1
//	tokens:
//	- {name: ada, role: admin, sha256: <64 hex digits>}
//	- {name: ci, role: editor, namespaces: [shop], expires: 2027-01-31T00:00:00Z, sha256: ...}
//	- {name: prometheus, role: viewer, certificate: prometheus.example}
//
// The error is a *RulesError where the file could be read, but not understood.
func ReadTokens(file string) ([]Token, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	return ParseTokens(file, text)
}

// ParseTokens is ReadTokens of a text.
func ParseTokens(file string, text []byte) ([]Token, error) {
	src := newSource(file, text)
	trees, mistakes := parseTree(src, text)
	r := newReader(src)
	var tokens []Token
	switch {
	case len(mistakes) > 0:
	case len(trees) != 1:
		r.mistake("", position{1, 1}, "E004", "it starts with: schema: "+TokensSchema, "%d documents, where one is wanted", len(trees))
	default:
		tokens = r.tokens(trees[0])
	}
	if mistakes = append(mistakes, r.mistakes...); len(mistakes) > 0 {
		return nil, &RulesError{Mistakes: sortMistakes(mistakes)}
	}
	return tokens, nil
}

func (r *reader) tokens(n *node) (tokens []Token) {
	const make = "aggregator auth token makes one"
	names, hashes, certificates := map[string]bool{}, map[[sha256.Size]byte]bool{}, map[string]bool{}
	r.object("", n, []field{
		{"schema", "schema: " + TokensSchema, func(path string, n *node) {
			version := ""
			r.text(&version)(path, n)
			if version != "" && version != TokensSchema {
				r.mistake(path, n.at, "E012", "schema: "+TokensSchema, "%q is not a schema that this version reads", clip(version))
			}
		}},
		{"tokens", make, func(path string, n *node) {
			if n.kind == kindList && (len(n.items) == 0 || len(n.items) > maxAdminTokens) {
				r.mistake(path, n.at, "E009", make, "%d tokens; want 1 to %d", len(n.items), maxAdminTokens)
				return
			}
			r.each(path, n, func(path string, n *node) {
				t := r.token(path, n, make)
				switch {
				case t.Name != "" && names[t.Name]:
					r.mistake(path+".name", n.at, "E005", "drop one, or call it otherwise", "%q stands here twice", clip(t.Name))
				case t.SHA256 != [sha256.Size]byte{} && hashes[t.SHA256]:
					r.mistake(path+".sha256", n.at, "E005", make, "two tokens have the same secret")
				case t.Certificate != "" && certificates[t.Certificate]:
					r.mistake(path+".certificate", n.at, "E005", "drop one", "%q stands here twice", clip(t.Certificate))
				}
				names[t.Name], hashes[t.SHA256], certificates[t.Certificate] = true, true, true
				tokens = append(tokens, t)
			})
		}},
	})
	return tokens
}

func (r *reader) token(path string, n *node, hint string) (t Token) {
	r.object(path, n, []field{
		{"name", "who it is: name: ada", func(path string, n *node) {
			r.text(&t.Name)(path, n)
			if len(t.Name) > 100 || strings.ContainsFunc(t.Name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
				r.mistake(path, n.at, "E009", "a short word, such as ada or ci", "%q is no name", clip(t.Name))
			}
		}},
		{"role", "viewer, editor or admin", func(path string, n *node) {
			text := ""
			if r.text(&text)(path, n); text == "" {
				return
			}
			if t.Role = Role(text); !t.Role.Allows(RoleViewer) {
				r.mistake(path, n.at, "E009", "viewer, editor or admin", "%q is no role", clip(text))
			}
		}},
		{"namespaces", "", r.someTexts(&t.Namespaces, "leave it out, for all")},
		{"expires", "", func(path string, n *node) {
			text := ""
			if r.text(&text)(path, n); text == "" {
				return
			}
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				r.mistake(path, n.at, "E009", "such as 2027-01-31T00:00:00Z", "%q is no time", clip(text))
			}
			t.Expires = at
		}},
		{"certificate", "", r.text(&t.Certificate)},
		{"sha256", "", func(path string, n *node) {
			if n.kind == kindInteger || n.kind == kindFloat { // of digits alone, or with one e
				n = &node{kind: kindText, text: n.text, at: n.at}
			}
			text := ""
			if r.text(&text)(path, n); text == "" {
				return
			}
			sum, err := hex.DecodeString(text)
			if err != nil || len(sum) != len(t.SHA256) {
				what := "is not 64 hexadecimal digits" // the text is not told: it may be the secret itself
				if strings.HasPrefix(text, tokenPrefix) {
					what = "is the secret itself, which stands in no file: make another"
				}
				r.mistakeQuietly(path, n.at, hint, what)
				return
			}
			copy(t.SHA256[:], sum)
		}},
	})
	if secret := t.SHA256 != [sha256.Size]byte{}; !r.reported(path) && !r.bad[path+".sha256"] && !r.bad[path+".certificate"] && secret == (t.Certificate != "") {
		r.mistake(path, n.at, "E014", "sha256, which "+hint+", or certificate: the name that it is of", "one of sha256 and certificate is wanted")
	}
	return t
}

// mistakeQuietly is a mistake that does not show the line.
func (r *reader) mistakeQuietly(path string, at position, hint, detail string) {
	r.bad[path] = true
	if len(r.mistakes) < maxMistakes {
		r.mistakes = append(r.mistakes, Mistake{File: r.src.name, Line: at.line, Column: at.column, Code: "E009", Path: path, Detail: detail, Hint: hint})
	}
}

// TokenOfCertificate finds who has a certificate of one of these names, as the first of them says; nil: nobody,
// or it has expired here.
func TokenOfCertificate(tokens []Token, names []string, now time.Time) *Token {
	for _, name := range names {
		for i := range tokens {
			if t := &tokens[i]; name != "" && t.Certificate == name {
				return t.unlessExpired(now)
			}
		}
	}
	return nil
}

func (t *Token) unlessExpired(now time.Time) *Token {
	if !t.Expires.IsZero() && !now.Before(t.Expires) {
		return nil
	}
	return t
}

// TokenOf finds whose secret it is; nil: nobody's, or it has expired.
func TokenOf(tokens []Token, secret string, now time.Time) *Token {
	sum := sha256.Sum256([]byte(secret))
	for i := range tokens {
		if t := &tokens[i]; bytes.Equal(t.SHA256[:], sum[:]) {
			return t.unlessExpired(now)
		}
	}
	return nil
}
