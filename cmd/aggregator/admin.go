package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional/adminapi"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/natsaudit"
	"github.com/spillgate/spillgate/sync/natsbus"
	"github.com/spillgate/spillgate/sync/natsentries"
	"github.com/spillgate/spillgate/sync/natsrules"
)

// openAdmin opens the admin listener, and reads who may do what there.
func openAdmin(s *configs.AggregatorSettings, log *slog.Logger) (ln net.Listener, cfg adminapi.Config, err error) {
	if s.Admin.Tokens != "" {
		if cfg.Access, err = adminapi.OpenAccess(s.Admin.Tokens, log); err != nil {
			return nil, cfg, fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
		}
	}
	private, err := cli.ListenerTLS(s.Admin.TLS, "http/1.1", tls.VerifyClientCertIfGiven, log) // else a token says who it is
	if err != nil {
		return nil, cfg, fmt.Errorf("%w: admin.tls: %w", cli.ErrInvalidConfig, err)
	}
	if ln, err = httpapi.Listen(s.Admin.Listen); err == nil && private != nil {
		ln = tls.NewListener(ln, private)
	}
	return ln, cfg, err
}

// rulebook changes the rules of the bucket that the settings name.
func rulebook(s configs.RulesSettings, bus *natsbus.Bus, log *slog.Logger) *adminapi.Rulebook {
	return adminapi.NewRulebook(s.Format, log, func(ctx context.Context) (*natsrules.Store, *natsaudit.Log, error) {
		ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
		defer cancel()
		js, err := bus.JetStream(s.KV.Domain)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w", natsrules.ErrUnavailable, err)
		}
		store, err := natsrules.Open(ctx, js, s.KV.Bucket)
		if err != nil {
			return nil, nil, err
		}
		audit, err := natsaudit.Open(ctx, js, s.KV.Domain, s.KV.Bucket)
		return store, audit, err
	})
}

// keybook tells of single keys, and changes what holds for them where the rules are in a bucket.
func keybook(s *configs.AggregatorSettings, bus *natsbus.Bus, keys adminapi.Keys, rules func() *limit.Set, log *slog.Logger) (*adminapi.Keybook, error) {
	cfg := adminapi.KeybookConfig{Keys: keys, Rules: rules, Log: log}
	if s.Secret != nil {
		keyer, err := deltasync.NewKeyer(s.Secret)
		if err != nil {
			return nil, fmt.Errorf("%w: secret: %w", cli.ErrInvalidConfig, err)
		}
		cfg.Keyer = &keyer
	}
	if s.Rules.Source == configs.SourceKV {
		cfg.Open = func(ctx context.Context) (*natsentries.Store, *natsaudit.Log, error) {
			ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
			defer cancel()
			js, err := bus.JetStream(s.Rules.KV.Domain)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", natsentries.ErrUnavailable, err)
			}
			store, err := natsentries.Open(ctx, js, s.Rules.KV.Bucket)
			if err != nil {
				return nil, nil, err
			}
			audit, err := natsaudit.Open(ctx, js, s.Rules.KV.Domain, s.Rules.KV.Bucket)
			return store, audit, err
		}
	}
	return adminapi.NewKeybook(cfg), nil
}
