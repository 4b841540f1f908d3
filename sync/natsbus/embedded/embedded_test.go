package embedded

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

func start(t *testing.T, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatalf("Start(%+v): %v", o, err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func TestListen(t *testing.T) {
	if url := start(t, Options{}).ClientURL(); url != "" {
		t.Errorf("ClientURL of a server that does not listen = %q, want none", url)
	}
	s := start(t, Options{Listen: "127.0.0.1:0"})
	if !strings.HasPrefix(s.ClientURL(), "nats://127.0.0.1:") {
		t.Fatalf("ClientURL = %q, want one of 127.0.0.1", s.ClientURL())
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer nc.Close()

	taken := strings.TrimPrefix(s.ClientURL(), "nats://")
	if _, err := Start(Options{Listen: taken}); !errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("Start on a port that is taken: %v, want ErrNotReady and the reason", err)
	}
	s.Shutdown()
	s.Shutdown()
	start(t, Options{Listen: taken}).Shutdown()
}

func TestListenRefuses(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:4222", ":4222", "10.1.2.3:4222", "example.com:4222", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"} {
		if _, err := Start(Options{Listen: addr}); err == nil {
			t.Errorf("Start with Listen %q succeeded", addr)
		} else if !strings.HasPrefix(err.Error(), "embedded nats-server: listen: ") {
			t.Errorf("Start with Listen %q: %v, want the field named", addr, err)
		}
	}
}

func TestJetStream(t *testing.T) {
	dir := t.TempDir()
	s := start(t, Options{StoreDir: dir})
	nc, err := nats.Connect("", nats.InProcessServer(s.InProcess()))
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatalf("JetStream: %v", err)
	}
	kv, err := js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "rules"})
	if err != nil {
		t.Fatalf("CreateKeyValue: %v", err)
	}
	if _, err := kv.PutString("a", "1"); err != nil {
		t.Fatalf("Put: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) == 0 {
		t.Errorf("StoreDir holds %d files, %v, want some", len(files), err)
	}
}
