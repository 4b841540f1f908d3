package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// SlowRules is after how long it is told that rules are still being read.
const SlowRules = 10 * time.Second

// Rules are where a daemon's rules come from.
type Rules interface {
	// Set is the rules as they were first read; nil: there are none yet.
	Set() *limit.Set
	// Warnings are what of them works, but hardly as it was meant.
	Warnings() []configs.Mistake
	// Reload has Run read them again, changed or not.
	Reload()
	// Run follows them until ctx ends. What changed is given to onChange, whole, which puts it in force
	// or says why not; what is wrong is told to onError, once, that included, and what was in force stays.
	Run(ctx context.Context, onChange func(*limit.Set, []configs.Mistake) error, onError func(error))
}

// Versioned are Rules that are kept as versions.
type Versioned interface {
	// Newest are the newest that are known, in force or not, one a namespace.
	Newest() []natsrules.Version
}

var _ Versioned = (*bucketRules)(nil)

// OpenRules reads the rules, unless ctx ends before: a file system over the network
// may never answer. region is whose rules they are, of versions that are rolled out; bus is asked for
// once Run begins.
func OpenRules(ctx context.Context, s configs.RulesSettings, region string, bus func() *natsbus.Bus, reg prometheus.Registerer, log *slog.Logger) (Rules, error) {
	if s.Source == configs.SourceKV {
		return openBucket(s, region, bus, reg, log)
	}
	return openFiles(ctx, s.Format, s.Path, SlowRules, log)
}

func openFiles(ctx context.Context, format configs.Format, path string, slow time.Duration, log *slog.Logger) (Rules, error) {
	type opened struct {
		watcher *configs.RulesWatcher
		err     error
	}
	read := make(chan opened, 1)
	go func() {
		watcher, err := format.Watch(path)
		read <- opened{watcher, err}
	}()
	tell := time.AfterFunc(slow, func() {
		log.Warn("rules are still being read: see whether their file system answers", "path", path, "after", slow)
	})
	defer tell.Stop()
	select {
	case o := <-read:
		if o.err != nil {
			return nil, o.err
		}
		return o.watcher, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("stopped before the rules at %s were read: %w", path, context.Cause(ctx))
	}
}

// TellWarnings logs what of the rules works, but hardly as it was meant.
func TellWarnings(warnings []configs.Mistake, log *slog.Logger) {
	const most = 20 // a log is no place for more
	for _, w := range warnings[:min(most, len(warnings))] {
		log.Warn("rules: "+w.Detail, "code", w.Code, "file", w.File, "line", w.Line, "path", w.Path, "hint", w.Hint)
	}
	if len(warnings) > most {
		log.Warn("rules have more warnings; edge validate shows all", "warnings", len(warnings))
	}
}

// ReloadOnHangup has SIGHUP read the rules again.
func ReloadOnHangup(ctx context.Context, hangups <-chan os.Signal, rules Rules) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangups:
			rules.Reload()
		}
	}
}

// Reloads counts what became of changed rules.
type Reloads struct {
	version prometheus.Gauge
	total   *prometheus.CounterVec
}

// NewReloads begins with the rules that were read at the start.
func NewReloads(reg prometheus.Registerer) *Reloads {
	r := &Reloads{
		version: prometheus.NewGauge(prometheus.GaugeOpts{Name: "spillgate_config_version", Help: "Rule sets put in force since the start."}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillgate_config_reloads_total", Help: "Changed rules read, by result: ok, or error, when the last good rules stay in force.",
		}, []string{"result"}),
	}
	r.version.Set(1)
	r.total.WithLabelValues("ok")
	r.total.WithLabelValues("error")
	reg.MustRegister(r.version, r.total)
	return r
}

// OK says that other rules are in force.
func (r *Reloads) OK(rules int, log *slog.Logger) {
	r.version.Inc()
	r.total.WithLabelValues("ok").Inc()
	log.Info("rules reloaded", "rules", rules)
}

// Failed says why they are not.
func (r *Reloads) Failed(err error, log *slog.Logger) {
	r.total.WithLabelValues("error").Inc()
	log.Error("rules not reloaded, the last good ones stay in force", "err", fmt.Sprint(err))
}
