package cli

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsbus/embedded/embeddedtest"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// What a bucket has is in force whole or not at all, as with files: mistakes are told with their
// places, and so is what the daemon does not take.
func TestRulesOfABucket(t *testing.T) {
	bus, _ := embeddedtest.JetStream(t, t.TempDir())
	js, err := bus.JetStream("")
	if err != nil {
		t.Fatal(err)
	}
	store, err := natsrules.Make(t.Context(), js, natsrules.Bucket, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	put := func(text string) {
		t.Helper()
		v, err := store.Put(t.Context(), natsrules.Version{Namespace: "shop", Author: "ada", Text: text}, number)
		if err != nil {
			t.Fatal(err)
		}
		number = v.Number
	}
	settings := configs.RulesSettings{Source: configs.SourceKV, KV: configs.RulesKVSettings{Bucket: natsrules.Bucket, File: filepath.Join(t.TempDir(), "good")}}
	open := func() Rules {
		t.Helper()
		rules, err := OpenRules(t.Context(), settings, "eu", func() *natsbus.Bus { return bus }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return rules
	}
	rules := open()
	if rules.Set() != nil {
		t.Error("there are rules before any were read")
	}
	took, told := make(chan *limit.Set, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { // cancelled and waited for below
		defer close(done)
		rules.Run(ctx, func(set *limit.Set, _ []configs.Mistake) error {
			if set.Rules()[0].Name == "unwanted" {
				return errors.New("not here")
			}
			took <- set
			return nil
		}, func(err error) { told <- err })
	}()
	const good = "schema: spillgate/v1\nnamespace: shop\nrules:\n- {name: a, rates: [{limit: 1, per: 1m}]}\n"
	for _, step := range []struct{ text, told string }{
		{good, ""},
		{strings.Replace(good, "limit: 1", "limit: x", 1), `version 2 of namespace shop, by "ada": shop, version 2:4:29: `},
		{strings.Replace(good, "shop", "bank", 1), "kept as that of shop"},
		{strings.Replace(good, "name: a", "name: unwanted", 1), "not here; the one before stays in force"},
		{strings.Replace(good, "limit: 1", "limit: 2", 1), ""},
	} {
		put(step.text)
		select {
		case set := <-took:
			if step.told != "" || set.Names()[0] != "shop" {
				t.Errorf("%s is in force", step.text)
			}
		case err := <-told:
			if step.told == "" || !strings.Contains(err.Error(), step.told) {
				t.Errorf("%s: %v, want %q", step.text, err, step.told)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing is heard of %s", step.text)
		}
	}
	cancel()
	<-done
	if set := open().Set(); set == nil || set.Rules()[0].Rates[0].Limit != 2 {
		t.Errorf("the file has %v, want the last good rules", set)
	}
}
