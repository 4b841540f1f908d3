package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/crdt"
	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/redisstore"
	"github.com/spillgate/spillgate/test/proc"
)

// A setting that is read and not handed on is one that does nothing.
func TestSettingsReachRedis(t *testing.T) {
	got, err := redisConfig(&configs.RedisSettings{
		Addrs: []string{"a:1", "b:2"}, MasterName: "m", Username: "u", Password: "p",
		SentinelUsername: "v", SentinelPassword: "q", DB: 3, TLS: true,
	}, "eu", slog.New(slog.DiscardHandler))
	if err != nil || got.TLS == nil {
		t.Fatalf("redisConfig = %+v, %v, want TLS", got, err)
	}
	got.TLS = nil
	want := redisstore.Config{
		Addrs: []string{"a:1", "b:2"}, MasterName: "m", Username: "u", Password: "p",
		SentinelUsername: "v", SentinelPassword: "q", DB: 3, Prefix: "sg-eu",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("redisConfig = %+v, want %+v", got, want)
	}
	if got, err := redisConfig(&configs.RedisSettings{Addrs: []string{"a:1"}, Cluster: true}, "eu", slog.New(slog.DiscardHandler)); err != nil || !got.Cluster || got.TLS != nil {
		t.Errorf("redisConfig = %+v, %v, want a cluster without TLS", got, err)
	}
}

func TestRedisOverTLS(t *testing.T) {
	cert, key := certificate(t)
	addr := proc.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	proc.Redis(t, "--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key)
	broken := filepath.Join(t.TempDir(), "broken.pem")
	if err := os.WriteFile(broken, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		s    configs.RedisSettings
		want string // in the error; "": it works
	}{
		{"with addresses", configs.RedisSettings{Addrs: []string{addr}, TLSCA: cert, TLSCert: cert, TLSKey: key}, ""},
		{"with a URL", configs.RedisSettings{URL: "rediss://" + addr, TLSCA: cert, TLSCert: cert, TLSKey: key}, ""},
		{"an authority that we do not know", configs.RedisSettings{Addrs: []string{addr}, TLS: true, TLSCert: cert, TLSKey: key}, "certificate"},
		{"without a certificate of ours", configs.RedisSettings{Addrs: []string{addr}, TLSCA: cert}, "redis: epoch: "},
		{"no such authority", configs.RedisSettings{Addrs: []string{addr}, TLSCA: cert + "x"}, "redis: tls.ca: "},
		{"a broken authority", configs.RedisSettings{Addrs: []string{addr}, TLSCA: broken}, "has no certificate in PEM"},
		{"a broken certificate", configs.RedisSettings{Addrs: []string{addr}, TLSCert: broken, TLSKey: key}, "redis: tls.cert: "},
	} {
		store, err := openStore(&configs.AggregatorSettings{Region: "eu", Redis: tt.s}, time.Now, slog.New(slog.DiscardHandler))
		if err == nil {
			_, err = store.Epoch(t.Context())
			for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 20; tries++ { // of a busy machine, which says nothing of certificates
				_, err = store.Epoch(t.Context())
			}
			if cerr := store.Close(); cerr != nil {
				t.Error(cerr)
			}
		}
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.name, err, tt.want)
		}
	}
}

// Certificates, who signs them, and the password are replaced while the aggregator runs: the next connection
// is made with what the files have then.
func TestRedisSecretsAreReplaced(t *testing.T) {
	addr, dir := proc.FreeAddr(t), t.TempDir()
	_, port, _ := net.SplitHostPort(addr)
	file := func(name string) string { return filepath.Join(dir, name) }
	put := func(from, name string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(file(name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	password := func(is string) {
		t.Helper()
		if err := os.WriteFile(file("password"), []byte(is+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := certificate(t)
	server := proc.Redis(t, "--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key, "--requirepass", "first")
	put(cert, "cert")
	put(key, "key")
	password("first")
	store, err := openStore(&configs.AggregatorSettings{Region: "eu", Redis: configs.RedisSettings{Addrs: []string{addr},
		TLSCA: file("cert"), TLSCert: file("cert"), TLSKey: file("key"), PasswordFile: file("password")}}, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	enters := func() error {
		_, err := store.Epoch(t.Context())
		for tries := 0; errors.Is(err, context.DeadlineExceeded) && tries < 20; tries++ { // of a busy machine
			_, err = store.Epoch(t.Context())
		}
		return err
	}
	if err := enters(); err != nil {
		t.Fatal(err)
	}
	operator := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "first"})
	defer operator.Close()
	next := func(settings ...string) {
		t.Helper()
		for i := 0; i < len(settings); i += 2 {
			if err := operator.ConfigSet(t.Context(), settings[i], settings[i+1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := operator.ClientKillByFilter(t.Context(), "SKIPME", "yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	next("requirepass", "second")
	if err := enters(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with the password of before: %v, want WRONGPASS", err)
	}
	password("second")
	if err := enters(); err != nil {
		t.Errorf("with the new password: %v", err)
	}
	cert, key = certificate(t)
	next("tls-ca-cert-file", cert)
	if err := operator.Do(t.Context(), "CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key).Err(); err != nil { // one without the other is refused
		t.Fatal(err)
	}
	next()
	if err := enters(); err == nil {
		t.Error("with certificates that nobody has signed: no error")
	}
	put(cert, "cert")
	put(key, "key")
	if err := enters(); err != nil {
		t.Errorf("with the new certificates: %v", err)
	}
	if err := os.Remove(file("password")); err != nil {
		t.Fatal(err)
	}
	next()
	if err := enters(); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("without the file of the password: %v, want an error that names it", err)
	}
}

// Long windows go to the Redis for those, and what is wrong with it is told.
func TestLongWindowsHaveARedisOfTheirOwn(t *testing.T) {
	short, long := proc.Redis(t), proc.Redis(t)
	settings := configs.AggregatorSettings{
		Region: "eu", Redis: configs.RedisSettings{URL: "redis://" + short.Addr},
		RedisLong: configs.RedisSettings{Addrs: []string{long.Addr}},
	}
	store, err := openStore(&settings, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, tt := range []struct {
		width    time.Duration
		in, away *proc.RedisServer
	}{{time.Second, short, long}, {time.Hour, long, short}} {
		tt.away.Kill()
		it := regional.Item{Key: 1, Width: tt.width, Slices: 40, Vectors: []regional.Vector{{Source: regional.FromEdge,
			Cells: []crdt.Cell{{Slice: crdt.Slice(time.Now().UnixNano() / int64(tt.width)), Charges: 5}}}}}
		if _, err := store.Merge(t.Context(), []regional.Item{it}); err != nil {
			t.Errorf("a window of 40 slices of %v needs the other Redis too: %v", tt.width, err)
		}
		tt.away.Restart()
	}
	settings.RedisLong.TLSCA = "none.pem"
	if _, err := openStore(&settings, time.Now, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "redis.long: redis: tls.ca: ") {
		t.Errorf("openStore: %v, want an error about redis.long", err)
	}
}

// Both stores go by the clock that they are given: what is long over by it is not kept.
func TestStoresGoByTheAggregatorsClock(t *testing.T) {
	const tomorrow = 24 * time.Hour
	server := proc.Redis(t)
	for name, redis := range map[string]configs.RedisSettings{"memory": {}, "Redis": {URL: "redis://" + server.Addr}} {
		for ahead, want := range map[time.Duration]int{0: 1, tomorrow: 0} {
			clock := func() time.Time { return time.Now().Add(ahead) }
			settings := configs.AggregatorSettings{Region: fmt.Sprint("eu", int(ahead.Hours())), Redis: redis, MaxBytes: 64 << 20}
			store, err := openStore(&settings, clock, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			it := regional.Item{Key: 1, Width: time.Minute, Slices: 60, Vectors: []regional.Vector{{Source: regional.FromEdge,
				Cells: []crdt.Cell{{Slice: crdt.Slice(time.Now().UnixNano() / int64(time.Minute)), Charges: 5}}}}}
			if _, err := store.Merge(t.Context(), []regional.Item{it}); err != nil {
				t.Fatal(err)
			}
			it.Vectors = nil
			got, err := store.Load(t.Context(), []regional.Item{it})
			if err != nil {
				t.Fatal(err)
			}
			if len(got[0].Vectors) != want {
				t.Errorf("%s, with a clock %v ahead: %d vectors of this minute, want %d", name, ahead, len(got[0].Vectors), want)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// certificate is one that signs itself, and is good for both sides.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: public}, {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "0"), filepath.Join(dir, "1")
}
