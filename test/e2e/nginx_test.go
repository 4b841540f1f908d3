package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
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

// nginxUpstream is what a system's nginx has before an upstream, here the edge as the proxy, and
// nothing else: it asks for the end of each connection.
const nginxUpstream = `
server {
  listen %s;
  client_max_body_size 16m;
  location / { proxy_pass http://%s; }
}
`

func TestNginx(t *testing.T) {
	t.Parallel()
	forwards(t, func(t *testing.T, edge, application string) string {
		addr, dir := proc.FreeAddr(t), t.TempDir()
		file := shipped(t, "nginx/spillgate.conf",
			"server 127.0.0.1:8080 max", "server "+edge+" max", "server 127.0.0.1:9000;", "server "+application+";", "listen 80;", "listen "+addr+";")
		beginNginx(t, addr, dir, file)
		return addr
	}, passes{allowed: true, failOpen: true, tells: true, switches: true, calls: true})
}

// beginNginx starts one that listens on addr, by a file of servers.
func beginNginx(t *testing.T, addr, dir, servers string) {
	t.Helper()
	frame := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(frame, fmt.Appendf(nil, nginxFrame, servers), 0o600); err != nil {
		t.Fatal(err)
	}
	begin(t, "nginx", addr, nil, "-p", dir, "-e", "stderr", "-c", frame)
}

// An upload that is denied is a denial behind nginx as it comes, too, which still sends the
// body when the answer is there.
func TestUploadsBehindNginxAreDenied(t *testing.T) {
	t.Parallel()
	s := newFront(t)
	addr, dir := proc.FreeAddr(t), t.TempDir()
	servers := filepath.Join(dir, "servers.conf")
	if err := os.WriteFile(servers, fmt.Appendf(nil, nginxUpstream, addr, s.proxy), 0o600); err != nil {
		t.Fatal(err)
	}
	beginNginx(t, addr, dir, servers)
	s.proxy = addr
	upload := ask{method: http.MethodPost, target: "/upload", body: strings.Repeat("x", 8<<20)}
	for i := range 22 {
		want := http.StatusTooManyRequests
		if i < 2 {
			want = http.StatusOK
		}
		if got := s.get(upload); got.status != want {
			t.Fatalf("request %d: %d, want %d", i, got.status, want)
		}
	}
}
