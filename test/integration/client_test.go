package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// client calls one edge.
type client struct {
	url  string
	http *http.Client
}

func newClient(t *testing.T, url string) client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return client{url: url, http: &http.Client{Transport: transport, Timeout: 5 * time.Second}}
}

// call is the body of a /v1/check.
type call struct {
	Attributes map[string]string `json:"attributes"`
	Cost       uint64            `json:"cost,omitempty"`
	Peek       bool              `json:"peek,omitempty"`
}

// reply is what /v1/check says.
type reply struct {
	Allowed   bool   `json:"allowed"`
	Rule      string `json:"rule"`
	Limit     uint64 `json:"limit"`
	Remaining uint64 `json:"remaining"`
	Basis     struct {
		Local   uint64 `json:"local"`
		Merged  uint64 `json:"merged"`
		AgeMS   int64  `json:"age_ms"`
		Regions int    `json:"regions"`
	} `json:"basis"`
}

// check asks for a decision. Any answer but 200 is an error.
func (c client) check(ask call) (reply, error) {
	body, err := json.Marshal(ask)
	if err != nil {
		return reply{}, err
	}
	resp, err := c.http.Post(c.url+"/v1/check", "application/json", bytes.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, fmt.Errorf("reply to %s: %w", body, err)
	}
	if resp.StatusCode != http.StatusOK {
		return reply{}, fmt.Errorf("reply to %s: %s: %s", body, resp.Status, text)
	}
	var r reply
	if err := json.Unmarshal(text, &r); err != nil {
		return reply{}, fmt.Errorf("reply to %s: %q: %w", body, text, err)
	}
	return r, nil
}

// charge counts n, in calls that cost one each, and fails if any is denied.
func (c client) charge(t testing.TB, account string, n int) {
	t.Helper()
	for i := range n {
		r, err := c.check(call{Attributes: map[string]string{"account": account}})
		if err != nil || !r.Allowed || r.Rule != "ledger" {
			t.Fatalf("call %d for %s: %+v, %v, want it allowed by ledger", i, account, r, err)
		}
	}
}

// healthy has the edge say that it lives.
func (c client) healthy() error {
	out, err := c.http.Get(c.url + "/healthz")
	if err != nil {
		return err
	}
	defer out.Body.Close()
	_, err = io.Copy(io.Discard, out.Body)
	if out.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("/healthz: %s", out.Status))
	}
	return err
}

// used is what the edge believes is used under an attribute. Looking counts
// nothing, and has the edge ask its region.
func (c client) used(name, value string) (uint64, error) {
	r, err := c.check(call{Attributes: map[string]string{name: value}, Peek: true})
	if err != nil {
		return 0, err
	}
	used := r.Basis.Local + r.Basis.Merged
	if want := r.Limit - min(r.Limit, used); r.Remaining != want {
		return 0, fmt.Errorf("%s=%s: %d used of %d, and %d remaining", name, value, used, r.Limit, r.Remaining)
	}
	return used, nil
}

// counts is what should be used, by account.
type counts map[string]uint64

// agree waits until each of the edges believes in want, and says how long that
// took. All are looked at each time: an edge asks its region of what is looked at.
func agree(t testing.TB, within time.Duration, want counts, edges ...*edge) time.Duration {
	t.Helper()
	start := time.Now()
	proc.Until(t, within, func() error {
		var first error
		for _, e := range edges {
			for _, account := range slices.Sorted(maps.Keys(want)) {
				got, err := e.used("account", account)
				if err == nil && got != want[account] {
					err = fmt.Errorf("believes that %d of account %s are used, want %d", got, account, want[account])
				}
				if err != nil && first == nil {
					first = fmt.Errorf("%s: %w", e.name, err)
				}
			}
		}
		return first
	})
	return time.Since(start)
}

// metric reads one series, such as `spillgate_degraded{reason="sync"}`.
func metric(admin, series string) (float64, error) {
	return proc.Metric(admin, series)
}

// awaitMetric waits until a series has a value.
func awaitMetric(t testing.TB, within time.Duration, admin, series string, want float64) {
	t.Helper()
	proc.Until(t, within, func() error {
		got, err := metric(admin, series)
		if err == nil && got != want {
			err = fmt.Errorf("%s = %v, want %v", series, got, want)
		}
		return err
	})
}

// get returns the text at url, which must answer 200.
func get(url string) (string, error) {
	resp, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("GET %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", url, resp.Status, text)
	}
	return string(text), nil
}
