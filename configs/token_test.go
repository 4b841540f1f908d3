package configs

import (
	"strings"
	"testing"

	"github.com/spillgate/spillgate/sync"
)

// TestNamesAreTokens: what the settings take, the protocol must take, or a
// daemon with good settings would not start.
func TestNamesAreTokens(t *testing.T) {
	for value, ok := range map[string]bool{
		"eu-west-1": true, "7": true, strings.Repeat("x", deltasync.MaxToken): true,
		"EU": false, "eu_west": false, "-eu": false, "e.u": false, "é": false, strings.Repeat("x", deltasync.MaxToken+1): false,
	} {
		if _, err := loadEdge(t, "--region", value, "--name", value, "--rules-path", "r", "--secret", testSecret); (err == nil) != ok {
			t.Errorf("region and name %q: %v, want taken: %v", value, err, ok)
		}
		if _, err := loadAggregator(t, "--region", "eu0", "--name", "a", "--peers", value); (err == nil) != ok {
			t.Errorf("peer %q: %v, want taken: %v", value, err, ok)
		}
	}
}

// TestHostNamesBecomeTokens: the default of name is one that can be used.
func TestHostNamesBecomeTokens(t *testing.T) {
	for host, want := range map[string]string{
		"edge-7.example.com": "edge-7", "DESKTOP-4F2": "desktop-4f2", "my_host": "my-host", "-x-": "x", "東京": "", "": "",
		"spillgate-edge-deployment-6d5f9c7b8-x2x4z": "edge-deployment-6d5f9c7b8-x2x4z",
	} {
		got := tokenOf(host)
		if got != want {
			t.Errorf("tokenOf(%q) = %q, want %q", host, got, want)
		}
		if err := deltasync.ValidToken(got); got != "" && err != nil {
			t.Errorf("tokenOf(%q) = %q: %v", host, got, err)
		}
	}
}
