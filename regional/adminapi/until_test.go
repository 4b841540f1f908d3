package adminapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/configs"
)

// A condition is of a rollout, says something that must hold, and can be measured.
func TestUntil(t *testing.T) {
	t.Parallel()
	d := newDesk(t, configs.FormatSpillgate)
	put := func(words string) string {
		query := url.Values{}
		for word := range strings.FieldsSeq(words) {
			name, value, _ := strings.Cut(word, "=")
			query.Set(name, value)
		}
		return shop + "?" + query.Encode()
	}
	d.want(422, "no such namespace elsewhere", "ed", "PUT", put("regions=us max_newly_denied=2%"), limited(10), "If-None-Match", "*")
	d.want(201, "", "ed", "PUT", shop, limited(10), "If-None-Match", "*")
	for words, says := range map[string]string{
		"max_denied=5%":                                "regions names none",
		"regions=us promote_after=30m":                 "nothing that must hold",
		"regions=us min_requests=5":                    "nothing that must hold",
		"regions=us max_denied=5":                      "want a part in percent",
		"regions=us max_denied=100%":                   "less than 100",
		"regions=us max_newly_denied=-1%":              "want a part in percent",
		"regions=us max_denied=NaN%":                   "want a part in percent",
		"regions=us max_denied=5% promote_after=1":     "want 1s to 720h",
		"regions=us max_denied=5% promote_after=1h1us": "want 1s to 720h",
		"regions=us max_denied=5% min_requests=0":      "want 1 to",
	} {
		d.want(400, says, "ed", "PUT", put(words), limited(20), "If-Match", "*")
	}
	d.want(422, "no rule has other limits", "ed", "PUT", put("regions=us max_newly_denied=2%"), strings.Replace(limited(10), "# of logins", "# of the login", 1), "If-Match", "*")
	long := strings.ReplaceAll(limited(10), "name: all", "name: "+strings.Repeat("x", 60))
	d.want(200, "", "ed", "PUT", shop, long, "If-Match", "*")
	d.want(422, "cannot stand beside it", "ed", "PUT", put("regions=us max_newly_denied=2%"), strings.Replace(long, "limit: 10", "limit: 5", 1), "If-Match", "*")
	d.want(200, "", "ed", "PUT", put("regions=us max_denied=2%"), strings.Replace(long, "limit: 10", "limit: 5", 1), "If-Match", "*")
	d.want(200, "", "ed", "POST", shop+"/revert", "", "If-Match", "*")
	d.want(200, "", "ed", "PUT", shop, limited(10), "If-Match", "*")

	w := d.want(200, `"code":"W271"`, "ed", "PUT", put("regions=us max_newly_denied=2% dry_run=1"), strings.Replace(limited(20), "/login", "/logins", 1), "If-Match", "*")
	if !strings.Contains(w.Body.String(), "measured of all alone: not of what else changed, or has a candidate of its own: login") {
		t.Errorf("of what is not measured is said %s", w.Body)
	}
	w = d.want(200, `"promote_after":"30m0s","promote_at":"`, "ed", "PUT", put("regions=us promote_after=30m max_newly_denied=2% max_denied=0.5%"), limited(20), "If-Match", "*")
	if !strings.Contains(w.Body.String(), `"max_newly_denied_percent":2,"max_denied_percent":0.5,"min_requests":500`) || strings.Contains(w.Body.String(), "W271") {
		t.Errorf("it is %s", w.Body)
	}
	d.want(200, `"changed":false`, "ed", "PUT", put("regions=us promote_after=30m max_newly_denied=2% max_denied=0.5%"), limited(20), "If-Match", "*")
	d.want(200, `"changed":true`, "ed", "PUT", put("regions=us promote_after=30m max_newly_denied=2% max_denied=0.6% min_requests=7"), limited(20), "If-Match", "*")
	d.want(200, `"until":{"text":"promoted after 30m0s, reverted above 2 % newly denied or 0.6 % denied, of at least 7 requests"`, "vi", "GET", "/admin/v1/namespaces", "")
	w = d.want(200, "", "ed", "POST", shop+"/promote", "", "If-Match", "*")
	if strings.Contains(w.Body.String(), "until") {
		t.Errorf("what was promoted is %s", w.Body)
	}
}
