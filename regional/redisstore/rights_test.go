package redisstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/regional/storetest"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

func openRights(t testing.TB, cfg redisstore.Config) (*redisstore.Rights, *redis.Client) {
	t.Helper()
	if cfg.Prefix == "" {
		cfg.Prefix = "sg"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	r, err := redisstore.NewRights(cfg, 8)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: cfg.Addrs[0], MaxRetries: -1})
	t.Cleanup(func() {
		_, _ = r.Close(), client.Close()
	})
	return r, client
}

// durable starts a server that loses nothing that it acknowledged, as the shipped
// configuration has it.
func durable(t testing.TB) *proc.RedisServer {
	t.Helper()
	return proc.RedisFrom(t, "../../deploy/redis/rights.conf", "--maxmemory", "100mb", "--repl-diskless-sync-delay", "0")
}

func TestRights(t *testing.T) {
	server := proc.Redis(t)
	storetest.Rights(t, func(t *testing.T) storetest.RightsSubject {
		r, client := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
		flush(t, client)
		return storetest.RightsSubject{Log: r, Wipe: func() { flush(t, client) }, Advance: func(d time.Duration) { advance(t, client, d) }}
	})
}

func testClusterRights(t *testing.T, c *nodes) {
	storetest.Rights(t, func(t *testing.T) storetest.RightsSubject {
		r, first := openRights(t, redisstore.Config{Addrs: c.addrs()[:1], Cluster: true})
		c.wipe(t)
		return storetest.RightsSubject{Log: r, Wipe: func() { c.wipe(t) }, Advance: func(d time.Duration) { advance(t, first, d) }}
	})
}

// clusterRights takes all lanes, and returns what checks that those of some lanes have
// another server now, and the others have not.
func clusterRights(t *testing.T, c *nodes) (failedOver func(dead []int)) {
	r, _ := openRights(t, redisstore.Config{Addrs: c.addrs(), Timeout: time.Second})
	ids := map[int]uint64{}
	for lane := range 8 {
		origin, err := r.Take(t.Context(), lane, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids[lane] = origin.ID
		if err := r.Commit(t.Context(), lane, 1, []escrow.Deposit{held(1, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return func(dead []int) {
		t.Helper()
		moved := 0
		for lane := range 8 {
			var want error
			if slices.Contains(dead, lane) {
				want = escrow.ErrFenced
				moved++
			}
			c.masters[1].await(t, func() error {
				if err := r.Commit(t.Context(), lane, 1, nil); !errors.Is(err, want) {
					return fmt.Errorf("Commit to lane %d: %w, want %w", lane, err, want)
				}
				return nil
			})
			origin, err := r.Take(t.Context(), lane, 2, nil)
			if err != nil || (origin.Age == 0) != (want != nil) || (origin.ID != ids[lane]) != (want != nil) {
				t.Errorf("Take of lane %d = %+v, %v, want it anew: %v", lane, origin, err, want != nil)
			}
			got, err := r.Load(t.Context(), lane, 2, []deltasync.Key{1})
			if err != nil || got[0].Version != 1 {
				t.Errorf("Load of lane %d = %+v, %v, want what was committed", lane, got, err)
			}
		}
		if moved == 0 || moved == 8 {
			t.Errorf("%d of 8 lanes were of the dead master: the test shows nothing", moved)
		}
	}
}

func take(t testing.TB, r *redisstore.Rights, token uint64) time.Duration {
	t.Helper()
	origin, err := r.Take(t.Context(), 0, token, nil)
	if err != nil {
		t.Fatalf("Take: %v", err)
	}
	return origin.Age
}

func held(key deltasync.Key, version uint64) escrow.Deposit {
	return escrow.Deposit{Key: key, Version: version, Holdings: []escrow.Holding{{Holder: 9, Granted: version, Limit: 10, Lasts: time.Minute, Region: "eu"}}}
}

func commit(t testing.TB, r *redisstore.Rights, token uint64, d ...escrow.Deposit) {
	t.Helper()
	if err := r.Commit(t.Context(), 0, token, d); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

// version is that of a key's deposit, 0 where there is none.
func version(t testing.TB, r *redisstore.Rights, token uint64, key deltasync.Key) uint64 {
	t.Helper()
	got, err := r.Load(t.Context(), 0, token, []deltasync.Key{key})
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return got[0].Version
}

// fencedOff checks that neither Load nor Commit, be it empty, trusts the log any more.
func fencedOff(t testing.TB, what string, r *redisstore.Rights, token uint64) {
	t.Helper()
	_, load := r.Load(t.Context(), 0, token, []deltasync.Key{1})
	for verb, err := range map[string]error{
		"Load": load, "Commit": r.Commit(t.Context(), 0, token, []escrow.Deposit{held(1, 1000)}), "an empty Commit": r.Commit(t.Context(), 0, token, nil),
	} {
		if !errors.Is(err, escrow.ErrFenced) || !errors.Is(err, escrow.ErrLost) {
			t.Errorf("%s: %s: %v, want ErrFenced and ErrLost", what, verb, err)
		}
	}
}

const aWhile = 200 * time.Millisecond

// A server that loses nothing is restarted: who had the lane goes on at once, who did
// not cannot know.
func TestRightsSurviveARestart(t *testing.T) {
	server := durable(t)
	r, client := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	take(t, r, 1)
	advance(t, client, aWhile)
	commit(t, r, 1, held(1, 1), held(2, 1))
	for token := uint64(1); token < 4; token++ {
		server.Kill()
		server.Restart()
		fencedOff(t, "restarted", r, token)
		if age := take(t, r, token+1); age < aWhile {
			t.Errorf("after restart %d age = %v, want that of the log, %v and more: nothing is lost", token, age, aWhile)
		}
		if got := version(t, r, token+1, 2); got != 1 {
			t.Errorf("after restart %d version = %d, want what was committed, 1", token, got)
		}
	}
	server.Kill()
	server.Restart()
	other, _ := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	if age := take(t, other, 10); age >= aWhile {
		t.Errorf("a process that does not know what was written last: age = %v, want it anew", age)
	}
	server.Kill()
	server.Restart()
	if age := take(t, r, 11); age >= aWhile {
		t.Errorf("who had the lane before the last one: age = %v, want it anew", age)
	}
	if got := version(t, r, 11, 2); got != 1 {
		t.Errorf("version = %d, want what was committed, 1", got)
	}
}

// A server that says that it may lose something is restarted, or comes back without its
// tail.
func TestRightsNoticeALostTail(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		lose bool
	}{
		{"restored from a copy", []string{"--appendonly", "yes", "--appendfsync", "always"}, true},
		{"everysec", []string{"--appendonly", "yes", "--appendfsync", "everysec"}, false},
		{"no fsync while rewriting", []string{"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"}, false},
		{"nothing on disk", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := proc.Redis(t, tt.args...)
			r, client := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
			take(t, r, 1)
			advance(t, client, aWhile)
			commit(t, r, 1, held(1, 1))
			dir := client.ConfigGet(t.Context(), "dir").Val()["dir"]
			aof, old := filepath.Join(dir, "appendonlydir"), filepath.Join(t.TempDir(), "old")
			if tt.lose {
				if err := os.CopyFS(old, os.DirFS(aof)); err != nil {
					t.Fatal(err)
				}
			}
			commit(t, r, 1, held(1, 2))
			server.Kill()
			if tt.lose {
				if err := errors.Join(os.RemoveAll(aof), os.CopyFS(aof, os.DirFS(old))); err != nil {
					t.Fatal(err)
				}
			}
			server.Restart()
			fencedOff(t, tt.name, r, 1)
			if age := take(t, r, 2); age >= aWhile {
				t.Errorf("age = %v, want it anew", age)
			}
			if got := version(t, r, 2, 1); tt.lose && got != 1 {
				t.Errorf("version = %d, want the old one: nothing was lost, and the test shows nothing", got)
			}
			commit(t, r, 2, held(1, 3))
		})
	}
}

// A replica takes over with the token, and without what was committed last: nobody who
// had the lane before trusts it.
func TestRightsFailOver(t *testing.T) {
	for _, lost := range []bool{true, false} {
		first, second := durable(t), durable(t)
		proxy := proc.NewProxy(t, first.Addr)
		_, a := openWith(t, redisstore.Config{Addrs: []string{first.Addr}})
		_, b := openWith(t, redisstore.Config{Addrs: []string{second.Addr}})
		r, _ := openRights(t, redisstore.Config{Addrs: []string{proxy.Addr}})
		second.Follow(first.Addr)
		caughtUp(t, a, b) // with its first replica a master takes another replication id
		take(t, r, 1)
		advance(t, a, aWhile)
		commit(t, r, 1, held(1, 1))
		caughtUp(t, a, b)

		behind, _ := openRights(t, redisstore.Config{Addrs: []string{second.Addr}})
		if err := behind.Commit(t.Context(), 0, 1, nil); !errors.Is(err, escrow.ErrLog) {
			t.Errorf("Commit to a replica: %v, want ErrLog", err)
		}
		if _, err := behind.Load(t.Context(), 0, 1, nil); !errors.Is(err, escrow.ErrLog) {
			t.Errorf("Load from a replica: %v, want ErrLog", err)
		}
		if _, err := behind.Take(t.Context(), 0, 2, nil); !errors.Is(err, escrow.ErrLog) {
			t.Errorf("Take at a replica: %v, want ErrLog", err)
		}

		second.Lead()
		if lost {
			commit(t, r, 1, held(1, 2))
		}
		proxy.Lead(second.Addr)
		first.Kill()
		proc.Until(t, 10*time.Second, func() error { // the connections break
			if err := r.Commit(t.Context(), 0, 1, nil); !errors.Is(err, escrow.ErrFenced) {
				return errors.Join(errors.New("want ErrFenced"), err)
			}
			return nil
		})
		fencedOff(t, "failed over", r, 1)
		if age := take(t, r, 2); age >= aWhile {
			t.Errorf("failed over, lost: %v: age = %v, want it anew", lost, age)
		}
		if got := version(t, r, 2, 1); got != 1 {
			t.Errorf("version = %d, want what the replica had, 1", got)
		}
		commit(t, r, 2, held(1, 3))
	}
}

// One that was a replica for a moment has another's data, be it that it served before.
func TestRightsFollowAndLeadAgain(t *testing.T) {
	first, second := durable(t), durable(t)
	_, a := openWith(t, redisstore.Config{Addrs: []string{first.Addr}})
	_, b := openWith(t, redisstore.Config{Addrs: []string{second.Addr}})
	r, _ := openRights(t, redisstore.Config{Addrs: []string{first.Addr}})
	second.Follow(first.Addr)
	caughtUp(t, a, b)
	take(t, r, 1)
	commit(t, r, 1, held(1, 1))
	caughtUp(t, a, b)
	second.Lead()
	commit(t, r, 1, held(1, 2))
	advance(t, a, aWhile)
	first.Follow(second.Addr)
	caughtUp(t, b, a)
	first.Lead()
	fencedOff(t, "back again", r, 1)
	if age := take(t, r, 2); age >= aWhile {
		t.Errorf("age = %v, want it anew", age)
	}
}

func TestRightsScriptIsSentAgain(t *testing.T) {
	r, client := openRights(t, redisstore.Config{Addrs: []string{proc.Redis(t).Addr}})
	forget := func() {
		t.Helper()
		if err := client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	take(t, r, 1)
	forget()
	commit(t, r, 1, held(1, 1))
	forget()
	if got := version(t, r, 1, 1); got != 1 {
		t.Errorf("version = %d, want 1", got)
	}
	forget()
	take(t, r, 2)
}

// A Commit of which nobody knows whether it was heard is not said again.
func TestRightsAreSaidOnce(t *testing.T) {
	f := newFickle(t, proc.Redis(t).Addr)
	r, _ := openRights(t, redisstore.Config{Addrs: []string{f.address}, Timeout: 500 * time.Millisecond})
	proc.Until(t, 10*time.Second, func() error { // a loaded machine
		_, err := r.Take(t.Context(), 0, 1, nil)
		return err
	})
	f.drops.Store(1)
	err := r.Commit(t.Context(), 0, 1, []escrow.Deposit{held(1, 1)})
	if !errors.Is(err, escrow.ErrLog) || errors.Is(err, escrow.ErrFenced) || f.dropped.Load() != 1 {
		t.Errorf("Commit over a connection that was dropped: %v, %d times, want ErrLog after one", err, f.dropped.Load())
	}
	f.drops.Store(0)
	f.deaf.Store(true)
	begin := time.Now()
	if err := r.Commit(t.Context(), 0, 1, nil); !errors.Is(err, escrow.ErrLog) || time.Since(begin) > 5*time.Second {
		t.Errorf("Commit to who does not answer: %v after %v, want ErrLog after about %v", err, time.Since(begin), 500*time.Millisecond)
	}
}

// An old master that is cut off from its replicas does not acknowledge, not even nothing:
// else leases would be renewed there while another grants.
func TestRightsNeedReplicasThatAreAskedFor(t *testing.T) {
	server := durable(t)
	r, client := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	take(t, r, 1)
	if err := client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(t.Context(), 0, 1, nil); !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("an empty Commit to a master without its replicas: %v, want ErrLog", err)
	}
}

// Where another number of lanes was configured, keys were in other lanes.
func TestRightsOfOtherLanes(t *testing.T) {
	r, client := openRights(t, redisstore.Config{Addrs: []string{proc.Redis(t).Addr}})
	take(t, r, 1)
	commit(t, r, 1, held(1, 1))
	advance(t, client, aWhile)
	more, err := redisstore.NewRights(redisstore.Config{Addrs: []string{client.Options().Addr}, Prefix: "sg"}, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	if age := take(t, more, 2); age >= aWhile {
		t.Errorf("age = %v, want it anew", age)
	}
	if got := version(t, more, 2, 1); got != 0 {
		t.Errorf("version = %d, want none", got)
	}
	for _, lanes := range []int{0, -1, 65} {
		if _, err := redisstore.NewRights(redisstore.Config{Addrs: []string{"h:1"}, Prefix: "sg"}, lanes); err == nil {
			t.Errorf("NewRights with %d lanes: no error", lanes)
		}
	}
}

func TestDurable(t *testing.T) {
	server := durable(t)
	r, client := openRights(t, redisstore.Config{Addrs: []string{server.Addr}})
	if err := r.Durable(t.Context()); err != nil {
		t.Errorf("Durable = %v, want none", err)
	}
	for name, tt := range map[string]struct {
		set  [][2]string
		want string
	}{
		"fsync":   {[][2]string{{"appendfsync", "everysec"}}, "set appendfsync always"},
		"rewrite": {[][2]string{{"no-appendfsync-on-rewrite", "yes"}}, "set it to no"},
		"evicts":  {[][2]string{{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}}, "set noeviction"},
		"no file": {[][2]string{{"appendonly", "no"}}, "set appendonly yes"},
	} {
		for _, s := range tt.set {
			if err := client.ConfigSet(t.Context(), s[0], s[1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		err := r.Durable(t.Context())
		if !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), server.Addr) {
			t.Errorf("%s: Durable = %v, want ErrLog with %q", name, err, tt.want)
		}
		for _, s := range tt.set {
			back := map[string]string{"appendfsync": "always", "no-appendfsync-on-rewrite": "no", "maxmemory": "0", "maxmemory-policy": "noeviction", "appendonly": "yes"}
			if err := client.ConfigSet(t.Context(), s[0], back[s[0]]).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	second := durable(t)
	_, b := openWith(t, redisstore.Config{Addrs: []string{second.Addr}})
	second.Follow(server.Addr)
	caughtUp(t, client, b)
	if err := r.Durable(t.Context()); err == nil || !strings.Contains(err.Error(), "set min-replicas-to-write 1") {
		t.Errorf("with a replica: Durable = %v, want a word on min-replicas-to-write", err)
	}
	server.Kill()
	if err := r.Durable(t.Context()); !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("of a dead server: Durable = %v, want ErrLog", err)
	}
}
