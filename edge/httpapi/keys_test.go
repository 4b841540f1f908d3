package httpapi

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillgate/spillgate/edge/limit"
)

// The admin listener tells in clear which keys were denied most of rules that say so, and of no other; with
// the names that aggregators have.
func TestDeniedKeys(t *testing.T) {
	perUser := limit.RuleSpec{Name: "told", Key: []string{"user"}, TellKeys: true, Rates: []limit.RateSpec{{Limit: 1, Per: time.Minute}}}
	kept := perUser
	kept.Name, kept.TellKeys = "kept", false
	b := newBench(t, limit.Document{Namespace: "a", Rules: []limit.RuleSpec{perUser}}, limit.Document{Namespace: "b", Rules: []limit.RuleSpec{kept}})
	admin := httptest.NewServer(b.api.Admin(b.registryAnew()))
	t.Cleanup(admin.Close)
	public := b.listen(t)
	if r := send(t, "GET", admin.URL+"/admin/v1/keys/top", ""); r.status != 200 || !strings.Contains(r.text, `"keys": []`) {
		t.Errorf("before any was denied: %d %s", r.status, r.text)
	}
	for user, times := range map[string]int{"u1": 5, "u2": 3, "u3": 1} {
		for range times {
			for _, namespace := range []string{"a", "b"} {
				send(t, "POST", public+"/v1/check", fmt.Sprintf(`{"namespace":%q,"attributes":{"user":%q}}`, namespace, user))
			}
			send(t, "POST", public+"/v1/check", fmt.Sprintf(`{"namespace":"a","peek":true,"attributes":{"user":%q}}`, user))
		}
	}
	r := send(t, "GET", admin.URL+"/admin/v1/keys/top", "")
	keys, _ := r.body["keys"].([]any)
	if r.status != 200 || len(keys) != 2 {
		t.Fatalf("%d %s, want two keys", r.status, r.text)
	}
	for i, want := range []struct {
		key    string
		denied float64
	}{{"user=u1", 4}, {"user=u2", 2}} {
		k, _ := keys[i].(map[string]any)
		name, _ := k["name"].(string)
		if _, err := limit.ReadKeyName(name); err != nil || k["key"] != want.key || k["denied"] != want.denied || k["namespace"] != "a" || k["rule"] != "told" {
			t.Errorf("key %d is %v, want %v", i, k, want)
		}
	}
	if r := send(t, "GET", admin.URL+"/admin/v1/keys/top?namespace=a&rule=told&limit=1", ""); !strings.Contains(r.text, "user=u1") || strings.Contains(r.text, "user=u2") {
		t.Errorf("the first alone is %s", r.text)
	}
	if r := send(t, "GET", admin.URL+"/admin/v1/keys/top?namespace=b", ""); !strings.Contains(r.text, `"keys": []`) {
		t.Errorf("of another namespace it tells %s", r.text)
	}
	if r := send(t, "GET", admin.URL+"/admin/v1/keys/top?limit=0", ""); r.status != 400 {
		t.Errorf("limit=0: %d %s", r.status, r.text)
	}
	if r := send(t, "GET", public+"/admin/v1/keys/top", ""); r.status == 200 {
		t.Errorf("it is told to everybody: %s", r.text)
	}
}
