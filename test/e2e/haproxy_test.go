package e2e

import (
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

func TestHAProxy(t *testing.T) {
	t.Parallel()
	forwards(t, func(t *testing.T, edge, application string) string {
		addr := proc.FreeAddr(t)
		begin(t, "haproxy", addr, proc.Environ("SPILLGATE_LISTEN="+addr, "SPILLGATE_EDGE="+edge, "SPILLGATE_APPLICATION="+application,
			"SPILLGATE_ASK="+proc.FreeAddr(t), "SPILLGATE_LUA="+shipped(t, "haproxy/spillgate.lua")),
			"-db", "-f", shipped(t, "haproxy/haproxy.cfg"))
		return addr
	}, passes{body: true, allowed: true, failOpen: true, tells: true, switches: true, calls: true})
}
