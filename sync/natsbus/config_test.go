package natsbus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/sync/natsbus/embedded"
)

func TestConfigNamesEachMistake(t *testing.T) {
	in := startEmbedded(t, embedded.Options{}).InProcess()
	ok := []string{"nats://127.0.0.1:4222"}
	for _, c := range []struct {
		name string
		cfg  Config
		want []string // parts of the message; none: valid
	}{
		{"one server", Config{URLs: ok}, nil},
		{"several servers and everything else", Config{URLs: append([]string{"tls://user:pass@[::1]"}, ok...), Name: "edge 1", InboxPrefix: "_INBOX_eu.pop1", CAFile: "a", CertFile: "b", KeyFile: "c", CredsFile: "d"}, nil},
		{"in process", Config{InProcess: in}, nil},
		{"no server", Config{}, []string{"urls: none given"}},
		{"two kinds of server", Config{URLs: ok, InProcess: in}, []string{"urls: given beside"}},
		{"no scheme", Config{URLs: []string{"127.0.0.1:4222"}}, []string{"urls[0]: not a URL"}},
		{"another scheme", Config{URLs: []string{"http://127.0.0.1:4222"}}, []string{`urls[0]: scheme "http"`}},
		{"no host", Config{URLs: append(ok, "nats://:4222")}, []string{"urls[1]: no host"}},
		{"two servers in one", Config{URLs: []string{"nats://a:4222,nats://b:4222"}}, []string{"urls[0]: "}},
		{"inbox elsewhere", Config{URLs: ok, InboxPrefix: "inbox"}, []string{"inbox_prefix: "}},
		{"inbox of all", Config{URLs: ok, InboxPrefix: "_INBOX.>"}, []string{"inbox_prefix: "}},
		{"certificate without key", Config{URLs: ok, CertFile: "a"}, []string{"cert_file, key_file: "}},
		{"two users", Config{URLs: ok, CredsFile: "a", NKeySeedFile: "b"}, []string{"creds_file, nkey_seed_file: "}},
		{"all at once", Config{InboxPrefix: "x", KeyFile: "a"}, []string{"urls: ", "inbox_prefix: ", "cert_file, key_file: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.cfg.Validate()
			if len(c.want) == 0 && err != nil {
				t.Errorf("Validate: %v, want nil", err)
			}
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("Validate: %v, want %q in it", err, w)
				}
			}
		})
	}
}

func TestConfigHidesPasswords(t *testing.T) {
	for _, u := range []string{"nats://user:secret@127.0.0.1:x", "http://user:secret@a", "nats://user:secret@"} {
		if err := (Config{URLs: []string{u}}).Validate(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("Validate(%q): %v, want an error without the password", u, err)
		}
	}
}

func TestConnectReadsFilesFirst(t *testing.T) {
	dir := t.TempDir()
	missing, broken := filepath.Join(dir, "missing"), filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("not a secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := []string{"nats://127.0.0.1:1"}
	for name, cfg := range map[string]Config{
		"ca":                   {URLs: ok, CAFile: missing},
		"certificate":          {URLs: ok, CertFile: missing, KeyFile: missing},
		"credentials":          {URLs: ok, CredsFile: missing},
		"nkey":                 {URLs: ok, NKeySeedFile: missing},
		"ca of rubbish":        {URLs: ok, CAFile: broken},
		"certificate: rubbish": {URLs: ok, CertFile: broken, KeyFile: broken},
		"nkey of rubbish":      {URLs: ok, NKeySeedFile: broken},
	} {
		if b, err := Connect(cfg); err == nil {
			t.Errorf("%s: Connect succeeded", name)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		} else if strings.Contains(err.Error(), "not a secret") {
			t.Errorf("%s: the error shows what is in the file: %v", name, err)
		}
	}
}
