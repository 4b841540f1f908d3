// Package cli is what the commands of edge and aggregator share: how a daemon
// starts, stops and logs, and what exit codes mean.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	_ "time/tzdata" // calendar limits name zones, and a scratch image has none

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spillgate/spillgate/configs"
)

// Logger writes as the settings say.
func Logger(w io.Writer, s configs.LogSettings) *slog.Logger {
	opts := &slog.HandlerOptions{Level: s.Level}
	if s.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// Registry is a metrics registry with what every daemon tells of itself.
func Registry(version string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillgate_build_info", Help: "1, labelled with the version that runs.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	reg.MustRegister(build)
	return reg
}

// UntilSignal is a context that ends with SIGINT or SIGTERM. A second signal
// ends the process at once.
func UntilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // back to the default: the next one kills
	return ctx, stop
}

// Stage is parts of a daemon that run together and stop together.
type Stage struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	mu     sync.Mutex // guards errs
	errs   []error
}

// NewStage starts a stage that stops when ctx ends or Stop is called. When a
// part fails, the whole stage stops.
func NewStage(ctx context.Context) *Stage {
	s := &Stage{}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// Go runs a part until the stage's context, which it is given, ends. A part
// that returns an error stops the others; Wait waits for it.
func (s *Stage) Go(name string, part func(context.Context) error) {
	s.wg.Go(func() {
		err := part(s.ctx)
		if err == nil || s.ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		err = fmt.Errorf("%s: %w", name, err)
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
		s.cancel(err)
	})
}

// Done is closed when the stage is to stop.
func (s *Stage) Done() <-chan struct{} { return s.ctx.Done() }

// Stop tells all parts to stop and waits for them. It returns what went wrong
// with any of them.
func (s *Stage) Stop() error {
	s.cancel(nil)
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.errs...)
}
