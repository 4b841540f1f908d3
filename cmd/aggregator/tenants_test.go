package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadTenants(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenants")
	for name, tc := range map[string]struct {
		text, want, err string
	}{
		"one a line":   {`{"tenant":"a","tier":"gold"}` + "\n" + `{"tenant":"b","remove":true}`, `{"tenant":"a","tier":"gold"} {"tenant":"b","remove":true}`, ""},
		"a list":       {` [{"tenant":"a","multiply":3.5,"ttl":"1h"}]`, `{"tenant":"a","multiply":3.5,"ttl":"1h"}`, ""},
		"as it tells":  {`{"tenants":[{"tenant":"a","tier":"gold","at":"2026-12-01T00:00:00Z","author":"ada","message":"m","etag":"\"1-x\"","until":"2030-01-01T00:00:00Z"}],"unreadable":[]}`, `{"tenant":"a","tier":"gold","until":"2030-01-01T00:00:00Z"}`, ""},
		"nothing":      {" ", "", "it says nothing"},
		"no JSON":      {"a,gold", "", "entry 1"},
		"half":         {`{"tenant":"a","tier":"gold"} {"tenant":`, "", "entry 2"},
		"a wrong word": {`{"tenant":"a","tiers":"gold"}`, "", "tiers"},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		asks, err := readTenants(path, nil)
		var got []string
		for i := range asks {
			got = append(got, encoded(asks[i]))
		}
		if strings.Join(got, " ") != tc.want || (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %s, %v, want %s, %s", name, got, err, tc.want, tc.err)
		}
	}
	if asks, err := readTenants("-", strings.NewReader(`{"tenant":"a","tier":"gold"}`)); err != nil || len(asks) != 1 {
		t.Errorf("from stdin: %v, %v", asks, err)
	}
}
