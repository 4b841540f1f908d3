package adminapi

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsbus/embedded"
	"github.com/spillgate/spillgate/sync/natsbus/embedded/embeddedtest"
	"github.com/spillgate/spillgate/sync/natsentries"
	"github.com/spillgate/spillgate/sync/natsrules"
)

const testSecret = "a secret of the cluster"

// desk is an admin listener before a bucket of rules, and who may come to it.
type desk struct {
	t       testing.TB
	handler http.Handler
	agg     *regional.Aggregator
	book    *Rulebook
	doc     *openAPIDoc
	nats    *embedded.Server
	put     func(subject, text string) error
	keys    *Keybook
	tokens  map[string]string // by name: ada is admin, ed editor, vi viewer, and ci editor of shop
	file    string            // of the tokens
}

func newDesk(t testing.TB, format configs.Format) *desk {
	t.Helper()
	bus, server := embeddedtest.JetStream(t, t.TempDir())
	js, err := bus.JetStream("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := natsrules.Make(t.Context(), js, "rules", "", 1); err != nil {
		t.Fatal(err)
	}
	if err := natsaudit.Make(t.Context(), js, "rules", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := natsentries.Make(t.Context(), js, "rules", "", 1); err != nil {
		t.Fatal(err)
	}
	put := func(subject, text string) error {
		_, err := js.Publish(context.Background(), subject, []byte(text))
		return err
	}
	d := &desk{t: t, put: put, doc: readOpenAPI(t), nats: server, tokens: map[string]string{}, file: filepath.Join(t.TempDir(), "tokens.yaml")}
	text := "schema: spillgate/tokens/v1\ntokens:\n"
	for _, who := range []string{"name: ada, role: admin", "name: ed, role: editor", "name: vi, role: viewer", "name: ci, role: editor, namespaces: [shop]"} {
		secret, hash := configs.NewToken()
		d.tokens[strings.Trim(strings.Fields(who)[1], ",")] = secret
		text += fmt.Sprintf("- {%s, sha256: %q}\n", who, hash)
	}
	d.write(text)
	access, err := OpenAccess(d.file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	agg, err := regional.New(regional.Config{Region: "eu", Name: "a1"}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	d.agg = agg
	keyer, err := deltasync.NewKeyer([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	d.keys = NewKeybook(KeybookConfig{Keys: agg, Keyer: &keyer, Log: slog.New(slog.DiscardHandler), Rules: func() *limit.Set { return nil }, Open: func(ctx context.Context) (*natsentries.Store, *natsaudit.Log, error) {
		store, err := natsentries.Open(ctx, js, "rules")
		if err != nil {
			return nil, nil, err
		}
		log, err := natsaudit.Open(ctx, js, "", "rules")
		return store, log, err
	}})
	d.book = NewRulebook(format, slog.New(slog.DiscardHandler), func(ctx context.Context) (*natsrules.Store, *natsaudit.Log, error) {
		store, err := natsrules.Open(ctx, js, "rules")
		if err != nil {
			return nil, nil, err
		}
		log, err := natsaudit.Open(ctx, js, "", "rules")
		return store, log, err
	})
	d.handler = New(Config{Subject: agg, Keys: d.keys, Connected: func() bool { return true }, Metrics: prometheus.NewRegistry(), Access: access, Rules: d.book})
	return d
}

func (d *desk) write(tokens string) {
	d.t.Helper()
	if err := os.WriteFile(d.file, []byte(tokens), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// ask asks as somebody, with headers (name, value ...), and holds the answer against OpenAPI.
func (d *desk) ask(who, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if who != "" {
		r.Header.Set("Authorization", "Bearer "+d.tokens[who])
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	if strings.Contains(r.Pattern, "/admin/") {
		d.doc.holds(d.t, r.Pattern, w)
	}
	return w
}

// want asks, and wants a status and words in the answer.
func (d *desk) want(status int, says string, who, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	w := d.ask(who, method, target, body, headers...)
	if w.Code != status || !strings.Contains(w.Body.String(), says) {
		d.t.Errorf("%s %s by %q: %d %s, want %d with %q", method, target, who, w.Code, w.Body, status, says)
	}
	return w
}

const shop = "/admin/v1/namespaces/shop"

// limited are rules of shop: so many an hour.
func limited(n int) string {
	return fmt.Sprintf("# what shop has\nschema: spillgate/v1\nnamespace: shop\nrules:\n- name: all\n  key: [user]\n  rates: [{name: hour, limit: %d, per: 1h}]\n# of logins\n- name: login\n  match: {path: /login}\n  rates: [{limit: 5, per: 1m}]\n", n)
}
