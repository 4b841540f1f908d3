package e2e

import (
	"strings"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

func TestCaddy(t *testing.T) {
	t.Parallel()
	forwards(t, func(t *testing.T, edge, application string) string {
		addr, dir := proc.FreeAddr(t), t.TempDir()
		// Its own defaults would be port 2019, and a folder in the home of whoever tests.
		file := shipped(t, "caddy/Caddyfile", "(application) {", "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n\n(application) {")
		begin(t, "caddy", addr, proc.Environ("HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir,
			"SPILLGATE_SITE="+addr[strings.LastIndexByte(addr, ':'):], "SPILLGATE_EDGE="+edge, "SPILLGATE_APPLICATION="+application),
			"run", "--adapter", "caddyfile", "--config", file)
		return addr
	}, whole)
}
