package redisstore

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for _, tt := range []struct {
		url  string
		want Config
		tls  string // server name
	}{
		{"redis://localhost", Config{Addrs: []string{"localhost:6379"}, Prefix: "sg"}, ""},
		{"redis://127.0.0.1:7000/", Config{Addrs: []string{"127.0.0.1:7000"}, Prefix: "sg"}, ""},
		{"redis://:s%40cret@r.example:7000/3", Config{Addrs: []string{"r.example:7000"}, Prefix: "sg", Password: "s@cret", DB: 3}, ""},
		{"rediss://bob:pw@r.example", Config{Addrs: []string{"r.example:6379"}, Prefix: "sg", Username: "bob", Password: "pw"}, "r.example"},
		{"redis://[::1]:7000", Config{Addrs: []string{"[::1]:7000"}, Prefix: "sg"}, ""},
	} {
		got, err := ParseURL(tt.url, "sg")
		if err != nil {
			t.Errorf("ParseURL(%q): %v", tt.url, err)
			continue
		}
		if (got.TLS != nil) != (tt.tls != "") || got.TLS != nil && got.TLS.ServerName != tt.tls {
			t.Errorf("ParseURL(%q): TLS is %v, want for server %q", tt.url, got.TLS, tt.tls)
		}
		got.TLS = nil
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("ParseURL(%q) = %+v, want %+v", tt.url, got, tt.want)
		}
	}
	for _, tt := range []struct{ url, want string }{
		{"", "scheme"},
		{"localhost:6379", "scheme"},
		{"http://localhost", `scheme is "http"`},
		{"redis://", "no host"},
		{"redis://:hidden@", "no host"},
		{"redis://u:hidden@h:port", "malformed"},
		{"redis://u:hidden@h:70000", "not host:port"},
		{"redis://u:hidden@h/first", `"first" is not a number`},
		{"redis://u:hidden@h/-1", "db: -1"},
		{"redis://u:hidden@h?read_timeout=1s", "parameters"},
		{"redis://u:hidden@h/%zz", "malformed"},
	} {
		_, err := ParseURL(tt.url, "sg")
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("ParseURL(%q): %v, want an error with %q and no password", tt.url, err, tt.want)
		}
	}
}

func TestValidateNamesEveryMistake(t *testing.T) {
	_, err := New(Config{
		Addrs:   []string{"ok:1", "nohost", "h:0", "h:http"},
		DB:      2,
		Prefix:  "a{b}",
		Timeout: -time.Second,
	})
	if err == nil {
		t.Fatal("New accepted it")
	}
	for _, want := range []string{`addrs[1]: "nohost"`, `addrs[2]: "h:0"`, `addrs[3]: "h:http"`, "db: 2", "prefix:", "timeout:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want it to name %q", err, want)
		}
	}
	for _, c := range []Config{{}, {Addrs: []string{"h:1"}}, {Addrs: []string{"h:1"}, Prefix: "p", DB: -1},
		{Addrs: []string{"h:1"}, Prefix: "p", DB: 1, Cluster: true}, {Addrs: []string{"h:1"}, Prefix: "p", MasterName: "m", Cluster: true}} {
		if _, err := New(c); err == nil {
			t.Errorf("New(%+v) accepted it", c)
		}
	}
	s, err := New(Config{Addrs: []string{"a:1", "b:2"}, MasterName: "m", DB: 2, Prefix: "p"})
	if err != nil {
		t.Fatalf("New of sentinels: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
