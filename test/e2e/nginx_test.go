package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillgate/spillgate/test/proc"
)

// nginxFrame is what a system's nginx.conf has around the shipped file; one process,
// so that none outlives the test.
const nginxFrame = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  include %s;
}
`

func TestNginx(t *testing.T) {
	t.Parallel()
	forwards(t, func(t *testing.T, edge, application string) string {
		addr, dir := proc.FreeAddr(t), t.TempDir()
		file := shipped(t, "nginx/spillgate.conf",
			"server 127.0.0.1:8080;", "server "+edge+";", "server 127.0.0.1:9000;", "server "+application+";", "listen 80;", "listen "+addr+";")
		frame := filepath.Join(dir, "nginx.conf")
		if err := os.WriteFile(frame, fmt.Appendf(nil, nginxFrame, file), 0o600); err != nil {
			t.Fatal(err)
		}
		begin(t, "nginx", addr, nil, "-p", dir, "-e", "stderr", "-c", frame)
		return addr
	}, passes{allowed: true, failOpen: true, tells: true, switches: true})
}
