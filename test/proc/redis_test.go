package proc

import (
	"strings"
	"testing"
)

func TestRedisFollows(t *testing.T) {
	master, replica := Redis(t), Redis(t, "--repl-diskless-sync-delay", "0")
	if err := master.obeys("SET a 1"); err != nil {
		t.Fatal(err)
	}
	if err := replica.Follows(); err == nil {
		t.Error("a master follows somebody")
	}
	replica.Follow(master.Addr)
	Until(t, readyWithin, replica.Follows)
	master.Kill()
	replica.Lead()
	if err := replica.Follows(); err == nil {
		t.Error("who leads follows somebody")
	}
	if got, err := replica.ask("GET a"); err != nil || strings.TrimSpace(got) != "1" {
		t.Errorf("the replica has %q, %v, want 1", got, err)
	}
}
