package configs

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/spillgate/spillgate/edge/limit"
)

// No escape in a quoted text makes a letter of it.
const testSecret = "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"

// cleanEnv hides the settings of whoever runs the tests.
func cleanEnv(t testing.TB) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, EnvPrefix+"_") {
			t.Setenv(name, "")
		}
	}
}

func loadEdge(t testing.TB, args ...string) (*EdgeSettings, error) {
	t.Helper()
	fs := pflag.NewFlagSet("edge", pflag.ContinueOnError)
	BindEdgeFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return LoadEdge(fs)
}

func loadAggregator(t testing.TB, args ...string) (*AggregatorSettings, error) {
	t.Helper()
	fs := pflag.NewFlagSet("aggregator", pflag.ContinueOnError)
	BindAggregatorFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return LoadAggregator(fs)
}

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	writeFile(t, file, text)
	return file
}

func TestShippedSettingsLoad(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_SECRET", testSecret)
	edge, err := loadEdge(t, "--config", "edge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if edge.Region != "local" || edge.PoP != "local" || edge.Name == "" || edge.Listen != ":8080" || edge.GRPCListen != ":8081" || edge.AdminListen != "127.0.0.1:6070" || edge.Rules.Path != "rules.yaml" ||
		edge.Lanes != 8 || edge.MaxKeys != 0 || edge.MaxBytes != 0 || edge.ViewMaxBytes != 64<<20 || string(edge.Secret) != testSecret ||
		fmt.Sprint(edge.NATS.URLs) != "[nats://127.0.0.1:4222]" || edge.Log != (LogSettings{slog.LevelInfo, "text"}) ||
		edge.Sync != (SyncSettings{100 * time.Millisecond, 20 * time.Millisecond, 250 * time.Millisecond, 16 << 20}) {
		t.Errorf("edge.yaml says %+v", edge)
	}
	if _, err := LoadRules(edge.Rules.Path); err != nil {
		t.Errorf("the rules that edge.yaml names: %v", err)
	}
	aggregator, err := loadAggregator(t, "--config", "aggregator.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if aggregator.Region != "local" || aggregator.Redis.URL != "redis://127.0.0.1:6379/0" || aggregator.Admin.Listen != "127.0.0.1:6071" || aggregator.Lanes != 8 || aggregator.Targets != "auto" {
		t.Errorf("aggregator.yaml says %+v", aggregator)
	}
}

// A budget is bytes a second, and may be written so.
func TestBudgetsAreBytesASecond(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_SECRET", testSecret)
	for text, want := range map[string]int64{"200kB/s": 200_000, "200kB": 200_000, "1MiB /s": 1 << 20, "5000": 5000} {
		if s, err := loadEdge(t, "--config", "edge.yaml", "--sync-budget", text); err != nil || s.Sync.Budget != want {
			t.Errorf("%s: %d, %v; want %d", text, s.Sync.Budget, err, want)
		}
	}
	for text, want := range map[string]string{"200kB/m": "is not a size", "3kB/s": "3000 bytes are too few; at least 4096"} {
		if _, err := loadEdge(t, "--config", "edge.yaml", "--sync-budget", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// What a shipped file shows as a comment is a setting too: with the comments
// taken away each key is known.
func TestShippedCommentsNameRealSettings(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_SECRET", testSecret)
	for _, name := range []string{"edge.yaml", "aggregator.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		commented := 0
		var lines []string
		for line := range strings.Lines(string(text)) {
			indent, rest, ok := strings.Cut(line, "# ")
			key, _, isKey := strings.Cut(strings.TrimLeft(rest, " "), ":")
			if ok && strings.TrimSpace(indent) == "" && isKey && strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") == "" {
				line, commented = indent+rest, commented+1
			}
			lines = append(lines, line)
		}
		if commented < 8 {
			t.Errorf("%s: only %d settings found in comments", name, commented)
		}
		file := settingsFile(t, strings.Join(lines, ""))
		if name == "edge.yaml" {
			_, err = loadEdge(t, "--config", file)
		} else {
			_, err = loadAggregator(t, "--config", file)
		}
		var e *SettingsError
		if !errors.As(err, &e) { // at least nkey beside creds is wrong
			t.Fatalf("%s with everything in force: %v", name, err)
		}
		for _, m := range e.Mistakes {
			if m.Code == "E007" || m.Code == "E009" || m.Code == "E003" {
				t.Errorf("%s: a comment shows what is no setting: %v", name, m)
			}
		}
	}
}

func TestFlagWinsOverEnvironmentOverFile(t *testing.T) {
	cleanEnv(t)
	file := settingsFile(t, "region: file\npop: file\nname: file\nlanes: 3\nrules: {path: r.yaml}\nsecret: 01234567890123456\nnats:\n  urls: [nats://a:1, nats://b:2]\ntrusted_proxies: [10.0.0.0/8, 2001:db8::1]\n")
	t.Setenv("SPILLGATE_POP", "env")
	t.Setenv("SPILLGATE_NAME", "env")
	t.Setenv("SPILLGATE_SYNC_INTERVAL", "1s")
	s, err := loadEdge(t, "-c", file, "--name", "flag")
	if err != nil {
		t.Fatal(err)
	}
	if s.Region != "file" || s.PoP != "env" || s.Name != "flag" || s.Lanes != 3 || s.Sync.Interval != time.Second || fmt.Sprint(s.NATS.URLs) != "[nats://a:1 nats://b:2]" {
		t.Errorf("settings %+v", s)
	}
	if s.Rules.Path != filepath.Join(filepath.Dir(file), "r.yaml") {
		t.Errorf("rules.path %q does not start at the file that names it", s.Rules.Path)
	}
	if string(s.Secret) != "01234567890123456" {
		t.Errorf("a secret of digits was read as %q", s.Secret)
	}
	if fmt.Sprint(s.TrustedProxies) != "[10.0.0.0/8 2001:db8::1/128]" {
		t.Errorf("trusted proxies %v", s.TrustedProxies)
	}
	from := map[string]Origin{}
	for _, e := range s.Effective() {
		from[e.Key] = e.From
	}
	for key, want := range map[string]Origin{"region": FromFile, "pop": FromEnv, "name": FromFlag, "sync.interval": FromEnv, "listen": FromDefault} {
		if from[key] != want {
			t.Errorf("%s comes from %q, want %q", key, from[key], want)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	cleanEnv(t)
	file := settingsFile(t, "secret: hunter2-hunter2-hunter2\nsecert: hunter2\nlanes: [hunter2]\nnats: {urls: [\"nats://u:hunter2@h:1\", \"hunter2@h\"]}\n")
	_, err := loadEdge(t, "-c", file)
	if err == nil {
		t.Fatal("a file with mistakes was taken")
	}
	if strings.Contains(fmt.Sprint(err), "hunter2") {
		t.Errorf("the error shows a secret:\n%v", err)
	}
	t.Setenv("SPILLGATE_SECRET", "hunter2")
	t.Setenv("SPILLGATE_NATS_URLS", "nats://u:hunter2@h:1,nats://hunter2@h,hunter2@h")
	s, err := loadEdge(t, "--region", "eu")
	if shown := fmt.Sprint(err, s.Effective()); strings.Contains(shown, "hunter2") {
		t.Errorf("a secret is shown:\n%s", shown)
	}
	if _, err := loadAggregator(t, "--region", "eu"); !strings.Contains(fmt.Sprint(err), "SPILLGATE_SECRET: E203 secret: 7 bytes") {
		t.Errorf("of a secret that is too short an aggregator says %v", err)
	}
	t.Setenv("SPILLGATE_SECRET", "hunter2-hunter2-hunter2")
	a, err := loadAggregator(t, "--region", "eu", "--redis-url", "redis://:hunter2@h:1/0", "--nats-urls", "nats://h")
	if err == nil && string(a.Secret) != "hunter2-hunter2-hunter2" {
		t.Errorf("the aggregator's secret is %q", a.Secret)
	}
	if shown := fmt.Sprint(err, a.Effective()); err != nil || strings.Contains(shown, "hunter2") || !strings.Contains(shown, "@h:1/0") {
		t.Errorf("the Redis URL is shown as %s", shown)
	}
}

// Of several that are missing each is told.
func TestMissingSettingsAllAtOnce(t *testing.T) {
	cleanEnv(t)
	_, err := loadEdge(t)
	for _, want := range []string{"region: is missing", "rules.path: is missing", "secret: is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

func TestSettingsMistakesAllAtOnce(t *testing.T) {
	cleanEnv(t)
	file := settingsFile(t, "region: e u\nlanes: 65\nview: {max_bytes: 3}\nadmin: {listen: \"0.0.0.0:6070\"}\nlog: {level: loud}\n")
	t.Setenv("SPILLGATE_SYNC_TIMEOUT", "fast")
	_, err := loadEdge(t, "-c", file, "--max-keys", "0", "--max-bytes", "1MiB", "--nats-tls-cert", "c.pem", "--sync-urgent-interval", "2s", "--rules-path", "r", "--trusted-proxies", "10.0.0.0/33")
	var e *SettingsError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want a *SettingsError", err)
	}
	text := strings.ReplaceAll(err.Error(), file, "FILE")
	for _, want := range []string{
		"FILE:1:9: E202 region: ", "FILE:2:8: E202 lanes: 65 is out of range; 1 to 64", "FILE:3:19: E202 view.max_bytes: ",
		"FILE:4:17: E202 admin.listen: \"0.0.0.0:6070\" is not a loopback address", "FILE:5:14: E202 log.level: ",
		"environment SPILLGATE_SYNC_TIMEOUT: E202 sync.timeout: \"fast\" is not a duration",
		"flag --max-keys: E202 max_keys: 0 is out of range", "flag --max-bytes: E202 max_bytes: 1048576 bytes are too few; at least 8388608", "nats.tls.cert: nats.tls.key is not set",
		"flag --sync-urgent-interval: E203 sync.urgent_interval: 2s is longer than sync.interval, 100ms",
		"flag --trusted-proxies: E202 trusted_proxies: ", "settings: E203 secret: is missing (hint: set SPILLGATE_SECRET",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the error has no %q", want)
		}
	}
	if len(e.Mistakes) != 12 || t.Failed() {
		t.Errorf("%d mistakes, want 12:\n%s", len(e.Mistakes), text)
	}
}

// What is probably meant by text that is no duration is told where it may stand there.
func TestDurationsAreHintedWithinTheirRange(t *testing.T) {
	cleanEnv(t)
	for value, want := range map[string]string{
		"0": `"0" is not a duration; 10ms to 1m0s`, "90": `"90" is not a duration; 10ms to 1m0s`, "30": `"30" is not a duration; 30s`,
		"soon": `"soon" is not a duration; such as 30s`, "0s": "0s is out of range; 10ms to 1m0s",
	} {
		if _, err := loadEdge(t, "--sync-interval", value); err == nil || !strings.Contains(err.Error(), "flag --sync-interval: E202 sync.interval: "+want) {
			t.Errorf("--sync-interval %s: %v, want %s", value, err, want)
		}
	}
}

func TestProxyInsideOfItsNetworkIsRefused(t *testing.T) {
	cleanEnv(t)
	file := settingsFile(t, "region: eu\nrules: {path: r}\nsecret: 01234567890123456\ntrusted_proxies: [127.0.0.0/8, 10.1.2.3/8]\n")
	_, err := loadEdge(t, "-c", file)
	const want = `:4:18: E202 trusted_proxies: "10.1.2.3/8" is no network, but an address in one; 10.0.0.0/8, or 10.1.2.3 for the one address`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("LoadEdge = %v, want %s", err, want)
	}
}

func TestUnknownKeysInTheFile(t *testing.T) {
	cleanEnv(t)
	for text, want := range map[string]string{
		"regoin: eu\n":                                `1:1: E007 regoin: "regoin" is not known here (hint: did you mean "region"?)`,
		"region: eu\nRegion: eu\n":                    `2:1: E007 Region: "Region" is not known here (hint: did you mean "region"?)`,
		"region: eu\nnats:\n  url: nats://h\n":        `3:3: E007 nats.url: "url" is not known here (hint: did you mean "urls"?)`,
		"region: eu\nnats.urls: nats://h\n":           `2:1: E007 nats.urls:`,
		"region: eu\nnats: nats://h\n":                `2:7: E009 nats: "********" is text, where a mapping is wanted`,
		"region: [eu]\n":                              `1:9: E009 region: this is a list, where one value is wanted`,
		"region: eu\npeers: [{name: us}]\n":           `2:9: E009 peers[0]: this is a mapping, where one value is wanted`,
		"region: eu\nregion: us\n":                    `2:1: E005 "region" stands here twice`,
		"region: eu\nnats: {urls: [nats://h:1]}\n":    `2:23: E003 a colon inside a word, between braces (hint: put the whole word in quotes`,
		"region: eu\n---\nregion: us\n":               `3:1: E201 a second document`,
		"region: eu\nsync: {targets: home}\n":         `2:17: E202 sync.targets: "home"`,
		"region: eu\nlanes: 0x10\n":                   `2:8: E202 lanes: "0x10" is not a whole number`,
		"region: eu\npeers: [us, eu]\n":               `2:8: E203 peers: "eu" is this region`,
		"region: eu\nredis: {url: localhost}\n":       `2:14: E202 redis.url: not a URL that starts with redis://`,
		"region: eu\nredis: {url: 'unix:///tmp/s'}\n": `2:14: E202 redis.url: not a URL that starts with redis:// or rediss://`,
	} {
		_, err := loadAggregator(t, "-c", settingsFile(t, text))
		var e *SettingsError
		if !errors.As(err, &e) || len(e.Mistakes) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %s", text, err, want)
		}
	}
	if _, err := loadAggregator(t, "-c", settingsFile(t, "# nothing\n"), "--region", "eu"); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := loadAggregator(t, "-c", settingsFile(t, "region: eu\nnats:\n  # urls: x\n")); err != nil {
		t.Errorf("a mapping with everything commented out: %v", err)
	}
	if _, err := loadAggregator(t, "-c", filepath.Join(t.TempDir(), "none")); err == nil || !strings.Contains(err.Error(), "E204") {
		t.Errorf("no such file: %v, want E204", err)
	}
}

func TestSecretFile(t *testing.T) {
	cleanEnv(t)
	good := []string{"--region", "eu", "--rules-path", "r"}
	file := settingsFile(t, testSecret+"\n")
	s, err := loadEdge(t, append(good, "--secret-file", file)...)
	if err != nil || !bytes.Equal(s.Secret, []byte(testSecret)) {
		t.Errorf("secret %q, %v", s.Secret, err)
	}
	for name, args := range map[string][]string{
		"both":      {"--secret-file", file, "--secret", testSecret},
		"too short": {"--secret", "0123456789abcde"},
		"no file":   {"--secret-file", file + "x"},
	} {
		var e *SettingsError
		if _, err := loadEdge(t, append(good, args...)...); !errors.As(err, &e) || len(e.Mistakes) != 1 || !strings.HasPrefix(e.Mistakes[0].Path, "secret") {
			t.Errorf("%s: %v, want one mistake about the secret", name, err)
		}
	}
}

// A password that YAML reads as an anchor, a tag or a block, or that follows its colon at
// once, is not in the error, which is logged.
func TestMistakesShowNoSecret(t *testing.T) {
	cleanEnv(t)
	for _, written := range []string{
		"redis: {password: *%s}", "redis: {password: !%s x}", "redis: {password: !%s}", "redis: {password: &%s}", "redis: {password:%s}", "redis: {password: {%s}}",
		"redis:\n  password: |%s", "redis:\n  password: >%s", "redis:\n  password: *%s", "redis:\n  password: \"%s\\k", "redis:\n  password: '%s'k", "redis:\n  password: @%s",
		"redis: %s", "nats: \"nats://u:%s@h\"", "secret:%s", "%s",
	} {
		_, err := loadAggregator(t, "-c", settingsFile(t, "region: eu\n"+fmt.Sprintf(written, testSecret)+"\n"))
		if err == nil || strings.Contains(err.Error(), testSecret[:8]) {
			t.Errorf("%q: %v, want an error that does not show the secret", written, err)
		}
	}
}

func TestAdminListenersStayOnLoopback(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:6070": true, "[::1]:6070": true, "localhost:6070": true, "127.8.8.8:0": true,
		":6070": false, "0.0.0.0:6070": false, "[::]:6070": false, "192.0.2.1:6070": false, "example.com:6070": false, "127.0.0.1": false, "127.0.0.1:99999": false,
		"unix:/run/edge.sock": true, "unix:edge.sock": false,
	} {
		var dst string
		if err := asLoopback(&dst)(addr); (err == nil) != ok {
			t.Errorf("admin.listen %q: %v, want it taken: %v", addr, err, ok)
		}
	}
}

// An aggregator's listens elsewhere where it asks who somebody is, and is asked so in private.
func TestAdminListensElsewhereWithTokens(t *testing.T) {
	cleanEnv(t)
	for _, c := range []struct{ settings, says string }{
		{"listen: 127.0.0.1:1", ""},
		{"listen: unix:/run/a.sock, tokens: t.yaml", ""},
		{"listen: \":6071\"", "nobody is asked"},
		{"listen: 192.0.2.1:6071, tokens: t.yaml", "in clear"},
		{"listen: \":6071\", tokens: t.yaml, tls: {cert: c.pem, key: k.pem}", ""},
		{"listen: \":6071\", tls: {cert: c.pem, key: k.pem}", "nobody is asked"},
		{"tls: {cert: c.pem}", "admin.tls.key is not set"},
		{"tokens: t.yaml, tls: {cert: c.pem, key: k.pem, client_ca: ca.pem}", ""},
		{"tokens: t.yaml, tls: {client_ca: ca.pem}", "clients show no certificate"},
		{"tls: {key: c.pem}", "admin.tls.cert is not set"},
	} {
		_, err := loadAggregator(t, "-c", settingsFile(t, "region: eu\nname: a\nadmin: {"+c.settings+"}\n"))
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("admin: {%s}: %v, want %q", c.settings, err, c.says)
		}
	}
}

// All that listens does so on a unix socket, too: its path is one from the root, that a socket can have.
func TestListenersTakeUnixSockets(t *testing.T) {
	for addr, ok := range map[string]bool{
		":8080": true, "0.0.0.0:8080": true, "unix:/run/spillgate/edge.sock": true, "unix:/" + strings.Repeat("x", mostUnix-1): true,
		"unix:/" + strings.Repeat("x", mostUnix): false, "unix:": false, "unix:/": false, "unix:/run/": false, "unix:./edge.sock": false, "unix:///run/edge.sock": true, "/run/edge.sock": false, "unix:/a\x00b": false,
	} {
		var dst string
		if err := asListen(&dst)(addr); (err == nil) != ok || dst != addr {
			t.Errorf("listen %q: %v, want it taken: %v", addr, err, ok)
		}
	}
}

func TestDurationsAndSizes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1m": time.Minute, "1m30s": 90 * time.Second, "24h": 24 * time.Hour, "1d": 24 * time.Hour, "2w": 14 * 24 * time.Hour,
		"1d12h": 36 * time.Hour, "1.5h": 90 * time.Minute, "0.5d": 12 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1", "-1s", "+1s", "1 m", "m", "1x", "1m ", "9999999999w", "15251w1d", strings.Repeat("1s", 100), "1..5s"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
	for text, want := range map[string]string{
		"60": "60s", "1 min": "1m", "2 hours": "2h", "3days": "3d", "500 msec": "500ms", "1 Week": "1w", "5 seconds": "5s",
		"2 months": "month is a month of the calendar, 30d a fixed window of 30 days", "soon": "such as 30s, 1m, 1m30s, 24h or 7d", "1 year": "such as 30s, 1m, 1m30s, 24h or 7d",
		"999999999h": "such as 30s, 1m, 1m30s, 24h or 7d", "999999999 hours": "such as 30s, 1m, 1m30s, 24h or 7d", "9999999999999999999": "such as 30s, 1m, 1m30s, 24h or 7d",
	} {
		if got := durationHint(text); got != want {
			t.Errorf("durationHint(%q) = %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]limit.Flow{
		"5/s": {Units: 5, Per: time.Second}, "300/m": {Units: 300, Per: time.Minute}, "10/500ms": {Units: 10, Per: 500 * time.Millisecond},
		"1_000 / h": {Units: 1000, Per: time.Hour}, "7/1.5s": {Units: 7, Per: 1500 * time.Millisecond}, "0/d": {Per: 24 * time.Hour},
	} {
		if got, err := ParseFlow(text); err != nil || got != want {
			t.Errorf("ParseFlow(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "5", "5/", "/s", "-5/s", "5/x", "5.5/s", "5//s", "99999999999999999999/s", "1/9999999999w", "1/.s", strings.Repeat("1", 100) + "/s"} {
		if got, err := ParseFlow(text); err == nil {
			t.Errorf("ParseFlow(%q) = %v, want an error", text, got)
		}
	}
	for text, want := range map[string]uint64{"4096": 4096, "64MiB": 64 << 20, "1 GB": 1e9, "2kB": 2000, "7B": 7} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "-1B", "1.5GiB", "99999999999TiB", "1XB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
}
