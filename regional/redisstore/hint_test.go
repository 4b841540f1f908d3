package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/escrow"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/test/proc"
)

// Whoever has the settings wrong is told by the store, and by the log of rights, what to
// mend, and not what a library makes of it.
func TestMistakesSayHowToMendThem(t *testing.T) {
	plain, locked := proc.Redis(t), proc.Redis(t, "--requirepass", "secret")
	client := redis.NewClient(&redis.Options{Addr: plain.Addr})
	defer client.Close()
	if err := client.Do(t.Context(), "ACL", "SETUSER", "u", "on", ">pw", "~other*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	nodes, watched := cluster(t), sentinels(t)
	for _, tt := range []struct {
		name string
		cfg  redisstore.Config
		want string
	}{
		{"no password", redisstore.Config{Addrs: []string{locked.Addr}}, "set redis.password"},
		{"no password, as if a cluster's", redisstore.Config{Addrs: []string{locked.Addr}, Cluster: true}, "set redis.password"},
		{"another password", redisstore.Config{Addrs: []string{locked.Addr}, Password: "x"}, "another user or password"},
		{"a user who may not", redisstore.Config{Addrs: []string{plain.Addr}, Username: "u", Password: "pw"}, "keys that begin with the region's prefix"},
		{"a cluster's node alone", redisstore.Config{Addrs: []string{nodes.masters[0].Addr}}, "set redis.cluster: true"},
		{"another node of it", redisstore.Config{Addrs: []string{nodes.masters[1].Addr}}, "set redis.cluster: true"},
		{"no cluster", redisstore.Config{Addrs: []string{plain.Addr}, Cluster: true}, "leave redis.cluster out"},
		{"a master that no sentinel knows", redisstore.Config{Addrs: watched.sentinels, MasterName: "other"}, "no sentinel knows the master"},
		{"no sentinels", redisstore.Config{Addrs: []string{plain.Addr}, MasterName: "spillgate"}, "are no sentinels'"},
		{"a sentinel for a server", redisstore.Config{Addrs: watched.sentinels[:1]}, "it is a sentinel"},
		{"a database that is not there", redisstore.Config{Addrs: []string{plain.Addr}, DB: 99}, "redis.db is above"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Prefix, tt.cfg.Timeout = "sg", 10*time.Second
			s, err := redisstore.New(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var items []regional.Item
			for i := range 256 { // of all shards
				items = append(items, regional.Item{Key: deltasync.Key(i + 1), Width: time.Second, Slices: 10})
			}
			_, err = s.Load(t.Context(), items)
			if !errors.Is(err, regional.ErrStore) || !strings.Contains(err.Error(), "(hint: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Load: %v, want that it says %q", err, tt.want)
			}
			r, err := redisstore.NewRights(tt.cfg, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			err = nil
			for lane := 0; lane < 8 && err == nil; lane++ {
				_, err = r.Take(t.Context(), lane, 1, nil)
			}
			if !errors.Is(err, escrow.ErrLog) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Take: %v, want that it says %q", err, tt.want)
			}
		})
	}
}
