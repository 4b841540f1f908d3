package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/spillgate/spillgate/cmd/internal/cli"
	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/memstore"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/regional/tierstore"
	"github.com/spillgate/spillgate/sync"
)

// openStore makes the store that the settings name, which goes by the clock now. It
// connects to nothing yet, and asks for no time.
func openStore(s *configs.AggregatorSettings, now func() time.Time, log *slog.Logger) (regional.Store, error) {
	if !s.Redis.Set() {
		log.Warn("no redis.url and no redis.addrs: counts live in memory alone and are gone when this process stops")
		return memstore.New(memstore.Config{MaxKeys: int(s.MaxBytes / 2 / memstore.KeyBytes), Now: now}), nil
	}
	store, err := openRedis(&s.Redis, s.Region, now, log)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrInvalidConfig, err)
	}
	if !s.RedisLong.Set() {
		return store, nil
	}
	long, err := openRedis(&s.RedisLong, s.Region, now, log)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: redis.long: %w", cli.ErrInvalidConfig, err), store.Close())
	}
	return tierstore.New(store, long), nil
}

// openRights makes the log of rights in strict limits; nil where there is no Redis for
// it: a region's aggregators have to share one. It is the Redis of long windows where
// there is one, as that has a log on disk.
func openRights(s *configs.AggregatorSettings, log *slog.Logger) (*rights, error) {
	inner, err := rightsIn(s, log)
	if inner == nil || err != nil {
		return nil, err
	}
	return &rights{Rights: inner, log: log}, nil
}

// rightsIn is the log itself.
func rightsIn(s *configs.AggregatorSettings, log *slog.Logger) (*redisstore.Rights, error) {
	r, name := &s.Redis, "redis"
	if s.RedisLong.Set() {
		r, name = &s.RedisLong, "redis.long"
	}
	if !r.Set() {
		return nil, nil
	}
	cfg, err := redisConfig(r, s.Region, log)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", cli.ErrInvalidConfig, name, err)
	}
	inner, err := redisstore.NewRights(cfg, s.Lanes)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", cli.ErrInvalidConfig, name, err)
	}
	return inner, nil
}

// rights is a log that says once what is wrong with the Redis that it is in: when it is
// first used, as who has no strict limits need not hear of it.
type rights struct {
	*redisstore.Rights
	log  *slog.Logger
	told atomic.Bool
}

// Load implements escrow.Log.
func (r *rights) Load(ctx context.Context, lane int, token uint64, keys []deltasync.Key) ([]escrow.Deposit, error) {
	found, err := r.Rights.Load(ctx, lane, token, keys)
	if err == nil && len(keys) > 0 { // else it was only asked whether it is there
		if !r.told.Swap(true) {
			if err := r.Durable(ctx); err != nil {
				r.log.Warn("strict limits are kept, and deny more than they must when this Redis restarts or fails over", "err", err)
			}
		}
	}
	return found, err
}

func openRedis(s *configs.RedisSettings, region string, now func() time.Time, log *slog.Logger) (*redisstore.Store, error) {
	cfg, err := redisConfig(s, region, log)
	if err != nil {
		return nil, err
	}
	cfg.Now = now
	return redisstore.New(cfg)
}

// redisConfig is what the settings say of a Redis. Its files may be replaced: the next connection is made
// with what they have then.
func redisConfig(s *configs.RedisSettings, region string, log *slog.Logger) (redisstore.Config, error) {
	prefix := "sg-" + region // regions may share a Redis; their counts must not meet there
	cfg := redisstore.Config{
		Addrs: s.Addrs, Cluster: s.Cluster, MasterName: s.MasterName,
		Username: s.Username, Password: s.Password, DB: s.DB, Prefix: prefix,
		SentinelUsername: s.SentinelUsername, SentinelPassword: s.SentinelPassword,
	}
	if s.URL != "" {
		var err error
		if cfg, err = redisstore.ParseURL(s.URL, prefix); err != nil {
			return redisstore.Config{}, err
		}
	}
	if cfg.TLS == nil && (s.TLS || s.TLSCA != "" || s.TLSCert != "") {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // go-redis asks for the name that it dials
	}
	if s.TLSCA != "" {
		authority, err := cli.OpenAuthority(s.TLSCA, log)
		if err != nil {
			return redisstore.Config{}, fmt.Errorf("redis: tls.ca: %w", err)
		}
		cfg.RootsNow = authority.Pool
	}
	if s.TLSCert != "" {
		pair, err := cli.OpenCertificate(s.TLSCert, s.TLSKey, log)
		if err != nil {
			return redisstore.Config{}, fmt.Errorf("redis: tls.cert: %w", err)
		}
		cfg.TLS.GetClientCertificate = pair.Client
	}
	if s.PasswordFile != "" {
		cfg.PasswordNow = func() (string, error) {
			text, err := os.ReadFile(s.PasswordFile)
			return string(bytes.TrimRight(text, "\r\n")), err
		}
		if _, err := cfg.PasswordNow(); err != nil {
			return redisstore.Config{}, fmt.Errorf("redis: password_file: %w", err)
		}
	}
	return cfg, nil
}
