package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

// settings are what a server says of how it keeps what it was told; empty: it does not
// say.
type settings struct {
	addr      string
	values    map[string]string
	replicas  int  // that follow it now
	clustered bool // its replicas take over by themselves
	err       error
}

// asked is the settings that matter for a log of rights.
var asked = []string{"appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory", "maxmemory-policy", "min-replicas-to-write", "min-replicas-max-lag"}

// server asks the server of a lane. Some that are rented out refuse to say.
func (r *Rights) server(ctx context.Context, lane int) settings {
	s := settings{values: map[string]string{}, clustered: r.cluster != nil}
	c, _ := r.client.(*redis.Client)
	if r.cluster != nil {
		if c, s.err = r.cluster.MasterForKey(ctx, r.name(lane)); s.err != nil {
			return s
		}
	}
	s.addr = c.Options().Addr
	pipe := c.Pipeline()
	replies := make([]*redis.MapStringStringCmd, len(asked))
	for i, name := range asked { // several names in one CONFIG GET are of Redis 7
		replies[i] = pipe.ConfigGet(ctx, name)
	}
	info := pipe.Info(ctx, "replication")
	_, s.err = pipe.Exec(ctx)
	for i, name := range asked {
		s.values[name] = replies[i].Val()[name]
	}
	if _, after, ok := strings.Cut(info.Val(), "connected_slaves:"); ok {
		line, _, _ := strings.Cut(after, "\r")
		s.replicas, _ = strconv.Atoi(line)
	}
	return s
}

// syncs says that the server writes to its disk whatever it acknowledges, before.
func (s settings) syncs() bool {
	return s.values["appendonly"] == "yes" && s.values["appendfsync"] == "always" && s.values["no-appendfsync-on-rewrite"] == "no"
}

// wrong is what is wrong with the settings, each with what to do about it.
func (s settings) wrong() error {
	if s.err != nil {
		return fmt.Errorf("redis %s: its settings cannot be read (CONFIG GET, INFO): %w: see to appendonly, appendfsync, maxmemory-policy and min-replicas-to-write yourself", s.addr, s.err)
	}
	var errs []error
	note := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("redis %s: "+format, append([]any{s.addr}, args...)...))
	}
	v := s.values
	switch {
	case v["appendonly"] != "yes":
		note("appendonly is %q: a restart loses who holds rights in strict limits, and nothing is granted for a lease and a window; set appendonly yes and appendfsync always", v["appendonly"])
	case v["appendfsync"] != "always":
		note("appendfsync is %q: after a restart nobody knows whether grants are lost, and nothing is granted for a lease and a window; set appendfsync always", v["appendfsync"])
	case v["no-appendfsync-on-rewrite"] != "no":
		note("no-appendfsync-on-rewrite is %q: while the file is rewritten grants are acknowledged that are not on disk; set it to no", v["no-appendfsync-on-rewrite"])
	}
	if p := v["maxmemory-policy"]; strings.HasPrefix(p, "allkeys-") && v["maxmemory"] != "0" {
		note("maxmemory-policy is %q: a full server drops a whole lane's log, and nothing is granted for a lease and a window; set noeviction, or a policy that is volatile", p)
	}
	if (s.clustered || s.replicas > 0) && v["min-replicas-to-write"] == "0" {
		note("it has replicas, and min-replicas-to-write is 0: when one takes over while this server is only cut off, both grant, and a strict limit is not kept; set min-replicas-to-write 1, and min-replicas-max-lag below the time in which a replica takes over (it is %s s)", v["min-replicas-max-lag"])
	}
	return errors.Join(errs...)
}

// Durable says what is wrong with the settings of the servers that keep the log, and how
// to mend it; nil: nothing is, or they have to be trusted. Errors wrap escrow.ErrLog.
func (r *Rights) Durable(ctx context.Context) error {
	seen := map[string]bool{}
	var errs []error
	for lane := range min(r.count, deltasync.MaxLanes) {
		s := r.server(ctx, lane)
		if !seen[s.addr] {
			seen[s.addr] = true
			errs = append(errs, s.wrong())
		}
		if r.cluster == nil {
			break
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", escrow.ErrLog, err)
	}
	return nil
}
