package proc

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestMetric(t *testing.T) {
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("# HELP keys_total Keys.\nkeys_total 12\nkeys 3.5\n" + `keys{of="a b"} 7` + "\n"))
	}))
	defer admin.Close()
	for series, want := range map[string]float64{"keys_total": 12, "keys": 3.5, `keys{of="a b"}`: 7} {
		if got, err := Metric(admin.URL, series); err != nil || got != want {
			t.Errorf("Metric(%s) = %v, %v, want %v", series, got, err, want)
		}
	}
	if got, err := Metrics(admin.URL, "keys", "keys_total"); err != nil || len(got) != 2 || got[0] != 3.5 || got[1] != 12 {
		t.Errorf("Metrics = %v, %v, want 3.5 and 12", got, err)
	}
	if got, err := Metric(admin.URL, "key"); err == nil {
		t.Errorf("Metric of what is not there = %v, want an error", got)
	}
	if got, err := Metric(admin.URL+"/elsewhere", "keys"); err == nil {
		t.Errorf("Metric of a page that is not there = %v, want an error", got)
	}
}
