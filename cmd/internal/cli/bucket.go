package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// bucketRules are those of a bucket.
type bucketRules struct {
	settings configs.RulesSettings
	region   string
	follower *natsrules.Follower
	log      *slog.Logger
	set      *limit.Set
	warnings []configs.Mistake

	onChange func(*limit.Set, []configs.Mistake) error // nil: Run has not begun
	onError  func(error)
}

// openBucket has the rules of the file that keeps the last good ones, if there is one.
func openBucket(s configs.RulesSettings, region string, bus func() *natsbus.Bus, reg prometheus.Registerer, log *slog.Logger) (*bucketRules, error) {
	b := &bucketRules{settings: s, region: region, log: log}
	b.onError = func(err error) { log.Error("rules", "err", fmt.Sprint(err)) }
	follower, err := natsrules.NewFollower(natsrules.FollowConfig{
		Open: func(ctx context.Context) (*natsrules.Store, error) {
			js, err := bus().JetStream(s.KV.Domain)
			if err != nil {
				return nil, fmt.Errorf("rules: %w", err)
			}
			return natsrules.Open(ctx, js, s.KV.Bucket)
		},
		Apply: b.apply, Tell: b.tell, File: s.KV.File,
	})
	switch {
	case follower == nil:
		return nil, err
	case err != nil:
		b.onError(err)
	}
	b.follower = follower
	reg.MustRegister(&bucketMetrics{follower.Status})
	if follower.Start() {
		log.Info("rules are those that were good last, until NATS has newer ones", "file", s.KV.File, "made", follower.Status().Newest.UTC().Format(time.RFC3339))
	} else {
		log.Warn("there are no rules until NATS has some: nothing is decided, and this process is not ready", "bucket", s.KV.Bucket, "domain", s.KV.Domain)
	}
	if s.KV.File == "" {
		log.Warn("rules are kept in no file: a start while NATS is away has none", "hint", "rules.kv.file")
	}
	return b, nil
}

// apply puts versions in force, one a namespace.
func (b *bucketRules) apply(versions []natsrules.Version) error {
	var texts []configs.Text
	for _, v := range versions {
		text, there := v.In(b.region)
		if !there {
			continue
		}
		t := configs.Text{Name: fmt.Sprintf("%s, version %d", v.Namespace, v.Number), Namespace: v.Namespace, Text: text, Version: v.Stamp()}
		if text != v.Elsewhere { // which is empty, but where it is rolled out
			t.Before = v.Elsewhere
		}
		texts = append(texts, t)
	}
	set, warnings, err := b.settings.Format.CheckTexts(texts...)
	switch {
	case err != nil:
		return err
	case b.onChange != nil:
		return b.onChange(set, warnings)
	}
	b.set, b.warnings = set, warnings
	return nil
}

// tell tells what is wrong: of the rules as of those of files, and where they are not reached for what it is.
func (b *bucketRules) tell(err error) {
	if errors.Is(err, natsrules.ErrUnavailable) || errors.Is(err, natsrules.ErrNone) {
		b.log.Warn("rules cannot be read, and stay as they are", "err", fmt.Sprint(err))
		return
	}
	b.onError(err)
}

// Newest are the newest versions that are known, in force or not.
func (b *bucketRules) Newest() []natsrules.Version { return b.follower.Newest() }

// Set implements Rules.
func (b *bucketRules) Set() *limit.Set { return b.set }

// Warnings implements Rules.
func (b *bucketRules) Warnings() []configs.Mistake { return b.warnings }

// Reload implements Rules: a bucket is read all the time.
func (b *bucketRules) Reload() {}

// Run implements Rules.
func (b *bucketRules) Run(ctx context.Context, onChange func(*limit.Set, []configs.Mistake) error, onError func(error)) {
	b.onChange, b.onError = onChange, onError
	b.follower.Run(ctx)
}

// bucketMetrics tell how the rules of a bucket fare.
type bucketMetrics struct{ status func() natsrules.Status }

var (
	rulesMade  = prometheus.NewDesc("spillgate_rules_made_timestamp_seconds", "When the newest version in force was made, of rules.source: kv; 0: there is none.", nil, nil)
	rulesHeard = prometheus.NewDesc("spillgate_rules_heard_timestamp_seconds", "When the bucket was last seen to have no newer rules than are known here; 0: not since the start.", nil, nil)
	rulesKnown = prometheus.NewDesc("spillgate_rules_namespaces", "Namespaces, by state: in_force; refused, whose newest version has mistakes, and the one before stays; older and lacking, of which the bucket has an older version or none, and what is known stays.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (m *bucketMetrics) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, ch) }

// Collect implements prometheus.Collector.
func (m *bucketMetrics) Collect(ch chan<- prometheus.Metric) {
	s := m.status()
	ch <- prometheus.MustNewConstMetric(rulesMade, prometheus.GaugeValue, stamp(s.Newest))
	ch <- prometheus.MustNewConstMetric(rulesHeard, prometheus.GaugeValue, stamp(s.Heard))
	for state, n := range map[string]int{"in_force": s.Namespaces, "refused": len(s.Refused), "older": len(s.Older), "lacking": len(s.Lacks)} {
		ch <- prometheus.MustNewConstMetric(rulesKnown, prometheus.GaugeValue, float64(n), state)
	}
}

// stamp is an instant as metrics have it; 0: there is none.
func stamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
