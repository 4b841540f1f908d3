package adminapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillgate/spillgate/regional"
	"github.com/spillgate/spillgate/regional/memstore"
)

func TestListener(t *testing.T) {
	reg := prometheus.NewRegistry()
	agg, err := regional.New(regional.Config{Region: "eu", Name: "a1", Peers: []string{"us"}, Registerer: reg}, memstore.New(memstore.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	connected := true
	srv := httptest.NewServer(New(Config{Subject: agg, Connected: func() bool { return connected }, Metrics: reg}))
	defer srv.Close()
	get := func(path string) (int, string) {
		t.Helper()
		res, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(b)
	}
	for _, c := range []struct {
		name, path string
		connected  bool
		status     int
		has        string
	}{
		{"alive", "/healthz", true, 200, "ok"},
		{"ready", "/readyz", true, 200, "ready"},
		{"ready, verbose", "/readyz?verbose", true, 200, "[+] store: ok"},
		{"its lanes", "/readyz?verbose", true, 200, "8 of 8 are its own, 1 aggregators live"},
		{"without NATS", "/readyz", false, 503, "nats: not connected"},
		{"alive without NATS", "/healthz", false, 200, "ok"},
		{"metrics", "/metrics", true, 200, "spillgate_keys_tracked 0"},
		{"drift", "/admin/v1/drift", true, 200, `{"regions":[{"region":"us","audited":"0001-01-01T00:00:00Z","keys":0,`},
		{"nothing there", "/x", true, 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			connected = c.connected
			if status, body := get(c.path); status != c.status || !strings.Contains(body, c.has) {
				t.Errorf("GET %s = %d %q, want %d with %q", c.path, status, body, c.status, c.has)
			}
		})
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v, %v", problems, err)
	}
}

func TestReadyTellsThatTheStoreIsAway(t *testing.T) {
	status, text := ready(regional.Stats{StoreDown: true, Unstored: 3}, true, true)
	if status != 200 || !strings.Contains(text, "3 keys to be written") {
		t.Errorf("ready = %d %q, want 200 and the keys to be written", status, text)
	}
}

func TestNewcomerIsNotReady(t *testing.T) {
	status, text := ready(regional.Stats{Listening: true}, true, false)
	if status != 503 || !strings.Contains(text, "lanes: waiting") {
		t.Errorf("ready = %d %q, want 503 and why", status, text)
	}
}

// What an operator got wrong is told with verbose, and unreadies nobody.
func TestMistakesAreTold(t *testing.T) {
	status, text := ready(regional.Stats{Unheard: []string{"usx"}, Namesake: true, OtherSecrets: 2, EdgeNamesakes: 3,
		Misfits: []regional.Misfit{{Region: "jp", Setting: regional.SettingLanes, Lanes: 4}, {Region: "ap", Setting: regional.SettingPeers}}}, true, true)
	for _, want := range []string{"region usx:", "region jp: it has another number of lanes (4)", "region ap: it tells this one", "--name", "secret: 2 edges", "names: 3 edges", "\nready"} {
		if status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("ready = %d, %q, want %q in it", status, text, want)
		}
	}
}
