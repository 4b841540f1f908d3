package configs

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRedisSettings(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_REDIS_PASSWORD", "hunter2")
	t.Setenv("SPILLGATE_REDIS_SENTINEL_PASSWORD", "hunter2")
	file := settingsFile(t, "region: eu\nredis: {addrs: [\"a:1\", \"[::1]:2\"], master_name: m, username: u, sentinel_username: v, db: 3, tls: {enabled: true, ca: ca.pem}}\n")
	s, err := loadAggregator(t, "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	if r := s.Redis; !r.Set() || fmt.Sprint(r.Addrs) != "[a:1 [::1]:2]" || r.Cluster || r.MasterName != "m" || r.Username != "u" || r.Password != "hunter2" ||
		r.SentinelUsername != "v" || r.SentinelPassword != "hunter2" || r.DB != 3 || !r.TLS || !strings.HasSuffix(r.TLSCA, "/ca.pem") {
		t.Errorf("settings %+v", r)
	}
	if shown := fmt.Sprint(s.Effective()); strings.Contains(shown, "hunter2") {
		t.Errorf("a password is shown: %s", shown)
	}
}

func TestRedisSettingsThatContradictEachOther(t *testing.T) {
	cleanEnv(t)
	good := "--redis-addrs=a:1"
	for _, tt := range []struct {
		args string
		want string // "": good
	}{
		{"", ""},
		{good, ""},
		{good + " --redis-cluster=true", ""},
		{"--redis-addrs=a:1,b:2 --redis-password=x --redis-username=u", ""},
		{good + " --redis-db=2", ""},
		{"--redis-addrs=a:1,b:2 --redis-master-name=m --redis-db=2", ""},
		{"--redis-url=rediss://h --redis-tls-ca=ca.pem", ""},
		{"--redis-url=rediss://h --redis-tls-enabled=true", ""},
		{"--redis-url=redis://h --redis-tls-enabled=true", "redis.tls.enabled: redis.url begins with redis://"},
		{"--redis-url=redis://h " + good, "redis.addrs: redis.url is set too (hint: one of the two)"},
		{"--redis-url=redis://h --redis-password=hunter2", "redis.password: redis.url is set too (hint: it belongs into the URL)"},
		{"--redis-url=redis://h --redis-db=1", "redis.db: redis.url is set too"},
		{"--redis-url=redis://h --redis-master-name=m", "redis.master_name: redis.url is set too (hint: a URL is of one server; sentinels have .addrs)"},
		{"--redis-url=redis://h --redis-cluster=true", "redis.cluster: redis.url is set too"},
		{"--redis-url=unix:///tmp/s", "redis.url: not a URL that starts with redis:// or rediss://"},
		{"--redis-addrs=redis://:hunter2@h:1", "redis.addrs: not a list of host:port"},
		{"--redis-addrs=:6379", "redis.addrs: not a list of host:port"},
		{"--redis-addrs=h:0", "redis.addrs: not a list of host:port"},
		{"--redis-addrs=a:1,", ""},
		{"--redis-addrs=", ""}, // takes back what the file says
		{"--redis-addrs=,", "redis.addrs: has no address in it: a list of host:port"},
		{good + " --redis-long-addrs=,,", "redis.long.addrs: has no address in it"},
		{"--redis-master-name=m", "redis.master_name: there is neither redis.url nor redis.addrs"},
		{"--redis-password=hunter2", "redis.password: there is neither redis.url nor redis.addrs"},
		{good + " --redis-cluster=true --redis-db=2", "redis.db: 2, but a cluster has only 0"},
		{"--redis-addrs=a:1,b:2 --redis-db=2", "redis.db: 2, but a cluster has only 0 (hint: 0, or, if the addresses are sentinels, redis.master_name too)"},
		{good + " --redis-cluster=true --redis-master-name=m", "redis.cluster: redis.master_name is set too"},
		{good + " --redis-cluster=yes", `redis.cluster: "yes": true or false`},
		{good + " --redis-sentinel-password=hunter2", "redis.sentinel_password: redis.master_name is not set"},
		{good + " --redis-username=u", "redis.username: redis.password is not set"},
		{good + " --redis-username=u --redis-password-file=f", ""},
		{good + " --redis-password=hunter2 --redis-password-file=f", "redis.password_file: redis.password is set too"},
		{"--redis-password-file=f --redis-url=redis://h", "redis.password_file: redis.url is set too"},
		{good + " --redis-master-name=m --redis-sentinel-username=u", "redis.sentinel_username: redis.sentinel_password is not set"},
		{good + " --redis-tls-cert=c.pem", "redis.tls.cert: redis.tls.key is not set (hint: a client certificate is both)"},
		{good + " --redis-long-url=redis://h:1", ""},
		{"--redis-url=redis://h --redis-long-addrs=a:1,b:2 --redis-long-master-name=m", ""},
		{"--redis-long-url=redis://h", "redis.long.url: there is no Redis for windows of up to 10 minutes"},
		{"--redis-long-addrs=h:1", "redis.long.addrs: there is no Redis for windows of up to 10 minutes"},
		{good + " --redis-long-password=hunter2", "redis.long.password: there is neither redis.long.url nor redis.long.addrs"},
		{good + " --redis-long-addrs=a:1,b:2 --redis-long-db=2", "redis.long.db: 2, but a cluster has only 0"},
		{good + " --redis-db=-1", "redis.db: -1 is out of range"},
	} {
		_, err := loadAggregator(t, append([]string{"--region=eu"}, strings.Fields(tt.args)...)...)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tt.args, err)
			}
			continue
		}
		var e *SettingsError
		if !errors.As(err, &e) || len(e.Mistakes) != 1 || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one, with %s", tt.args, err, tt.want)
		}
	}
}

// A list of addresses without any is one that somebody forgot to fill in, wherever it
// stands.
func TestRedisWithoutAnAddress(t *testing.T) {
	cleanEnv(t)
	const want = "redis.addrs: has no address in it"
	check := func(where string, args ...string) {
		t.Helper()
		_, err := loadAggregator(t, append([]string{"--region=eu"}, args...)...)
		var e *SettingsError
		if !errors.As(err, &e) || len(e.Mistakes) != 1 || e.Mistakes[0].Code != "E202" || e.Mistakes[0].Hint == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want an E202 with a hint and %s", where, err, want)
		}
	}
	check("a flag", "--redis-addrs= ,")
	for _, list := range []string{`" "`, `[" ", ""]`, `["", ""]`, `","`} {
		check("addrs: "+list, "--config="+settingsFile(t, "redis:\n  addrs: "+list+"\n"))
	}
	t.Setenv(EnvPrefix+"_REDIS_ADDRS", " , ")
	check("the environment")
}
