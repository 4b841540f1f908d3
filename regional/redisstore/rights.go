package redisstore

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/sync"
)

//go:embed rights.lua
var rightsSource string

var rightsScript = redis.NewScript(rightsSource)

// Rights is the log of the rights in strict limits in Redis. The package comment says
// how it is laid out, and what is guaranteed with which settings of the server.
type Rights struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	prefix  string
	count   int              // of lanes
	now     func() time.Time // a second clock beside the server's

	mu    sync.Mutex       // guards what follows; not held across a call
	lanes map[int]*ownLane // by lane
}

// ownLane is what this process knows of a lane that it took last.
type ownLane struct {
	token uint64
	acked int64     // sequence number of the last write that was acknowledged to it, or read
	at    time.Time // when that was
	alone bool      // the server was never seen with a replica meanwhile
	safe  bool      // it wrote to its disk before it acknowledged, when the lane was taken
}

// provesFor is how long the last write proves that nothing is lost. A backup that is
// older than that and younger than this process's last write cannot be told from a log
// that is whole, where another process had the lane in between.
const provesFor = 10 * time.Minute

var _ escrow.Log = (*Rights)(nil)

// NewRights returns a log of so many lanes as the region's aggregators are configured
// for: a key is in another lane where there are more or less, so a log of another
// number of lanes is begun anew. It connects when it is first used.
func NewRights(cfg Config, lanes int) (*Rights, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("redis: log of rights: %w", err)
	}
	if lanes < 1 || lanes > deltasync.MaxLanes {
		return nil, fmt.Errorf("redis: log of rights: %d lanes, want 1 to %d", lanes, deltasync.MaxLanes)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	o := cfg.options()
	o.MaxRetries = -1 // who writes wants to know of each write whether it was acknowledged
	r := &Rights{client: redis.NewUniversalClient(o), prefix: cfg.Prefix, count: lanes, now: time.Now, lanes: map[int]*ownLane{}}
	r.cluster, _ = r.client.(*redis.ClusterClient)
	return r, nil
}

// Close closes the connections.
func (r *Rights) Close() error {
	if err := r.client.Close(); err != nil {
		return logFailed("close", err)
	}
	return nil
}

// Take implements escrow.Log.
func (r *Rights) Take(ctx context.Context, lane int, token uint64, regions []string) (escrow.Origin, error) {
	safe := r.server(ctx, lane).syncs()
	had, acked := r.had(lane, safe)
	reply, err := r.call(ctx, lane, "take", token, r.count, strconv.FormatUint(rand.Uint64(), 10), had, acked, strings.Join(regions, " "))
	if err == nil && len(reply) != 6 {
		err = fmt.Errorf("%w: %d parts", errReply, len(reply))
	}
	if err != nil {
		return escrow.Origin{}, logFailed("take lane", err)
	}
	r.mu.Lock()
	if l := r.lanes[lane]; l != nil && l.token == token {
		l.safe = safe
	}
	r.mu.Unlock()
	// A clock that was set forward, be it the server's or that of who took the lane,
	// makes nothing older than the other one says.
	text, _ := reply[0].(string)
	id, err := strconv.ParseUint(text, 10, 64)
	ours, ok := reply[1].(int64)
	theirs, ok2 := reply[2].(int64)
	if err != nil || !ok || !ok2 {
		return escrow.Origin{}, logFailed("take lane", fmt.Errorf("%w: ID %v, ages %v, %v", errReply, reply[0], reply[1], reply[2]))
	}
	revoked, err := parseRevoked(reply[4])
	if err != nil {
		return escrow.Origin{}, logFailed("take lane", err)
	}
	origin := escrow.Origin{ID: id, Age: since(ours, theirs), Revoked: revoked}
	if err := noted(&origin, reply[5]); err != nil {
		return escrow.Origin{}, logFailed("take lane", err)
	}
	return origin, nil
}

// since is how long ago something was, in milliseconds by two clocks: no longer than either says.
func since(ours, theirs int64) time.Duration {
	return time.Duration(min(max(0, min(ours, theirs)), int64(escrow.Forever/time.Millisecond))) * time.Millisecond
}

// noted reads which regions a lane knew, and when it was trusted and disowned last.
func noted(o *escrow.Origin, reply any) error {
	list, ok := reply.([]any)
	if !ok || len(list)%4 != 0 {
		return fmt.Errorf("%w: regions %v", errReply, reply)
	}
	for ; len(list) > 0; list = list[4:] {
		name, ok := list[0].(string)
		deniers, are := list[1].(string)
		named, ok2 := list[1].(int64)
		ok2 = ok2 || are && name == ";d"
		ours, ok3 := list[2].(int64)
		theirs, ok4 := list[3].(int64)
		switch {
		case !ok || !ok2 || !ok3 || !ok4:
			return fmt.Errorf("%w: region %v", errReply, list[:4])
		case name == ";v":
			o.Trusted = max(time.Millisecond, since(max(ours, theirs), math.MaxInt64)) // what it covers was before, by both
		case name == ";d":
			o.Disowned, o.Deniers = max(time.Millisecond, since(ours, theirs)), strings.Fields(deniers)
		default:
			o.Regions = append(o.Regions, escrow.NotedRegion{Name: name, Named: named == 1, Since: since(ours, theirs)})
		}
	}
	return nil
}

// Load implements escrow.Log.
func (r *Rights) Load(ctx context.Context, lane int, token uint64, keys []deltasync.Key) ([]escrow.Deposit, error) {
	out := make([]escrow.Deposit, 0, len(keys))
	for first := 0; first == 0 || first < len(keys); first += maxCallDeposits {
		some := keys[first:min(len(keys), first+maxCallDeposits)]
		args := make([]any, len(some))
		for i, key := range some {
			args[i] = rightsField(key)
		}
		reply, err := r.call(ctx, lane, "load", token, args...)
		if err == nil && len(reply) != len(some) {
			err = fmt.Errorf("%w: %d deposits of %d keys", errReply, len(reply), len(some))
		}
		if err != nil {
			return nil, logFailed("load rights", err)
		}
		for i, key := range some {
			d := escrow.Deposit{Key: key}
			if reply[i] != nil {
				stored, _ := reply[i].(string)
				if d, err = parseDeposit(key, stored); err != nil {
					return nil, logFailed("load rights", fmt.Errorf("%w; if nothing else helps, DEL %s: the log of the lane begins anew", err, r.name(lane)))
				}
			}
			out = append(out, d)
		}
	}
	return out, nil
}

// Commit implements escrow.Log.
func (r *Rights) Commit(ctx context.Context, lane int, token uint64, deposits []escrow.Deposit) error {
	for first := 0; first == 0 || first < len(deposits); first += maxCallDeposits {
		some := deposits[first:min(len(deposits), first+maxCallDeposits)]
		args := make([]any, 0, 3*len(some))
		for i := range some {
			d := &some[i]
			args = append(args, rightsField(d.Key), escrow.Keeps(d.Holdings).Milliseconds(), appendDeposit(nil, d))
		}
		if _, err := r.call(ctx, lane, "commit", token, args...); err != nil {
			return logFailed("commit rights", err)
		}
	}
	return nil
}

// Disown implements escrow.Log.
func (r *Rights) Disown(ctx context.Context, lane int, token uint64, ago time.Duration, by []string) error {
	if _, err := r.call(ctx, lane, "disown", token, min(ago, escrow.Forever).Milliseconds(), strings.Join(by, " ")); err != nil {
		return logFailed("disown lane", err)
	}
	return nil
}

// maxCallDeposits bounds how long a call holds up the server for others: 5 to 7 µs a
// deposit.
const maxCallDeposits = 256

// call calls the script and returns what it answers behind the sequence number and the
// replicas, which it notes. What the server is told is told once: one that was told to
// forget the script is told again, having done nothing.
func (r *Rights) call(ctx context.Context, lane int, verb string, token uint64, args ...any) ([]any, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all := append([]any{verb, strconv.FormatUint(token, 10), r.now().UnixMilli()}, args...)
	reply, err := rightsScript.Run(ctx, r.client, []string{r.name(lane)}, all...).Result()
	if err != nil {
		r.moved()
		return nil, err
	}
	if reason, ok := reply.(string); ok {
		if reason == reasonTaken {
			r.forget(lane)
			return nil, fmt.Errorf("%w: lane %d: %s", escrow.ErrFenced, lane, reason)
		}
		return nil, fmt.Errorf("%w: lane %d: %w: %s", escrow.ErrFenced, lane, escrow.ErrLost, reason)
	}
	list, _ := reply.([]any)
	if len(list) < 2 {
		return nil, fmt.Errorf("%w: %T", errReply, reply)
	}
	seq, ok := list[0].(int64)
	replicas, ok2 := list[1].(int64)
	if !ok || !ok2 {
		return nil, fmt.Errorf("%w: %v, %v", errReply, list[0], list[1])
	}
	r.note(lane, token, verb, seq, replicas == 0)
	return list[2:], nil
}

// reasonTaken is the script's word for who was fenced off by a Take, and by no fault.
const reasonTaken = "another has the lane"

// had is the token that this process took the lane with last, and the last write that
// was acknowledged to it; empty where they prove nothing. Where the server acknowledges
// before it has written to its disk, somebody else may have taken the lane since, and
// that is lost; where it has a replica, this may be the replica, and what somebody else
// wrote since is elsewhere.
func (r *Rights) had(lane int, safe bool) (token, acked string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[lane]
	if l == nil || !safe || !l.safe || !l.alone || r.now().Sub(l.at).Abs() > provesFor {
		return "", ""
	}
	return strconv.FormatUint(l.token, 10), strconv.FormatInt(l.acked, 10)
}

func (r *Rights) note(lane int, token uint64, verb string, seq int64, alone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[lane]
	switch {
	case verb == "take":
		r.lanes[lane] = &ownLane{token: token, acked: seq, at: r.now(), alone: alone}
	case l != nil && l.token == token:
		l.acked, l.at, l.alone = max(l.acked, seq), r.now(), l.alone && alone
	}
}

func (r *Rights) forget(lane int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.lanes, lane)
}

// moved has the client look again which node of a cluster serves what.
func (r *Rights) moved() {
	if r.cluster != nil {
		r.cluster.ReloadState(context.Background()) // returns at once, and not more often than 5 times a second
	}
}

func (r *Rights) name(lane int) string { return fmt.Sprintf("%s{%02x}rights", r.prefix, lane) }

// rightsField is the field of a key in its lane's hash: its bytes, so that no other
// field is as long.
func rightsField(key deltasync.Key) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(key))
}

func logFailed(verb string, err error) error {
	if errors.Is(err, escrow.ErrFenced) {
		return fmt.Errorf("redis: %s: %w", verb, err)
	}
	return fmt.Errorf("redis: %s: %w: %w", verb, escrow.ErrLog, hinted(err))
}
