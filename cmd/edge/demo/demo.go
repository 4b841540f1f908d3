// Package demo shows Spillgate to somebody who has a minute and nothing
// installed: several regions with their edges in one process, over an embedded
// nats-server, with the delays of a wide area between them, under the load of a
// real site. Everything is the production code; only the network between the
// regions is made bad, and every decision is compared with an exact log that no
// edge can see.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spillgate/spillgate/cmd/edge/demo/accesslog"
	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/edge/httpapi"
)

// Output is where a run tells of itself.
type Output struct {
	Stdout, Stderr io.Writer
	// JSON keeps Stdout for one summary in JSON; progress goes to Stderr.
	JSON bool
	// Rewrite says that progress goes to a terminal: one line, written anew
	// each second.
	Rewrite bool
	Logger  *slog.Logger
}

// Run shows the demo until ctx ends, or cfg.For is over.
func Run(ctx context.Context, cfg Config, out Output) (err error) {
	if err := cfg.Validate(); err != nil {
		return err
	}
	rules, err := readRules(cfg.RulesFile)
	if err != nil {
		return err
	}
	src, about, err := openSource(cfg)
	if err != nil {
		return err
	}
	c, err := newCluster(ctx, cfg, rules, out.Logger)
	if err != nil {
		return err
	}
	d := &show{cluster: c, meter: newMeter(c), source: src, out: out, progress: out.Stdout}
	if out.JSON {
		d.progress = out.Stderr
	}
	banner(d.progress, c, rules, about)
	sum, err := d.run(ctx)
	if err != nil {
		return err
	}
	if out.JSON {
		enc := json.NewEncoder(out.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(sum)
	}
	return closing(out.Stdout, sum)
}

// openSource is where the traffic comes from, and a phrase about it. The source
// is nil where there is none.
func openSource(cfg Config) (source, string, error) {
	if cfg.NoTraffic {
		return nil, "no traffic but yours", nil
	}
	if cfg.LogFile == "" {
		return newGenerated(1), fmt.Sprintf("generated traffic, %d requests a second", cfg.Rate), nil
	}
	l, err := accesslog.Open(cfg.LogFile)
	if err != nil {
		return nil, "", err
	}
	about := fmt.Sprintf("%s of %s, %d a second", counted(len(l.Requests), "request"), cfg.LogFile, cfg.Rate)
	if l.Skipped > 0 {
		about += fmt.Sprintf(" (%s skipped)", counted(l.Skipped, "unreadable line"))
	}
	if l.Cut {
		about += " (its beginning; it is long)"
	}
	return l, about, nil
}

// show is one run of a cluster.
type show struct {
	*cluster
	meter    *meter
	source   source // nil: no traffic
	out      Output
	progress io.Writer
}

// run runs the cluster until ctx ends, cfg.For is over or a part fails, and
// closes it.
//
//	traffic ──► sites ◄── listeners       samples ──► progress
//	              │ ▲
//	         edges' buses ◄──► aggregators' buses (impaired) ◄──► each other
//
// Teardown, last in first out: traffic, listeners and samples; the edges with
// their last flush; the aggregators; then buses, stores and the nats-server.
func (d *show) run(ctx context.Context) (sum Summary, err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	if d.cfg.For > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.cfg.For)
		defer cancel()
	}
	d.begun = time.Now()
	back, nodes, front := cli.NewStage(context.WithoutCancel(ctx)), cli.NewStage(context.WithoutCancel(ctx)), cli.NewStage(ctx)
	for _, r := range d.regions {
		back.Go("aggregator "+r.name, func(ctx context.Context) error { return r.aggregator.Run(ctx, r.bus) })
		for _, s := range r.edges {
			nodes.Go("edge "+s.name, func(ctx context.Context) error { return d.runNode(ctx, s) })
			front.Go("listener of "+s.name, func(ctx context.Context) error {
				return httpapi.NewServer(s.api, httpapi.ServerConfig{
					Unready: func() { s.api.SetDraining(true) }, DrainTimeout: drain, Logger: d.log,
				}).Serve(ctx, s.listener)
			})
		}
	}
	if d.source != nil {
		front.Go("traffic", newTraffic(d.source, d.regions, d.cfg.Rate).run)
	}
	front.Go("samples", d.watch)
	select {
	case <-front.Done():
	case <-nodes.Done():
	case <-back.Done():
	}
	err = front.Stop()
	sum = d.meter.summary(time.Now()) // while edges and aggregators still run
	return sum, errors.Join(err, nodes.Stop(), back.Stop())
}

// runNode runs an edge's node until ctx ends. What it could not send in the end
// is no failure here: the counts end with the demo.
func (d *show) runNode(ctx context.Context, s *edgeSite) error {
	err := s.node.Run(ctx, s.bus)
	if err != nil && ctx.Err() != nil {
		d.log.Warn("edge stopped", "edge", s.name, "err", err)
		return nil
	}
	return err
}

// watch samples, and shows progress each second, until ctx ends.
func (d *show) watch(ctx context.Context) error {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	line := newLine(d.progress, d.out.Rewrite)
	defer line.end()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			now := time.Now()
			s := d.meter.sample(now)
			if n%int(time.Second/sampleEvery) == 0 {
				line.write(d.status(s))
			}
		}
	}
}
