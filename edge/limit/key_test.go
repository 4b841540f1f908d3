package limit_test

import (
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

// FuzzKeyParts: two keys of two parts are the same only if both parts are, or
// a client could choose its name so as to count against somebody else.
func FuzzKeyParts(f *testing.F) {
	// Without their lengths, or with only one byte of them, these run together.
	f.Add("ab", "c", "a", "bc")
	f.Add("asb", "c", "a", "bsc")
	f.Add("a", "s", "as", "s")
	f.Add("a\x00", "b", "a", "\x00b")
	f.Add("a", "b\x00s", "a\x00sb", "s")
	f.Add("a", "s\x00\x00\x00\x01b", "as\x00\x00\x00\x01", "b")
	ns := compileNamespace(f, limit.Document{Rules: []limit.RuleSpec{{Name: "pair", Key: []string{"a", "b"}}}})
	key := func(a, b string) (string, bool) {
		req := request(ns, map[string]string{"a": a, "b": b})
		defer req.Release()
		rules := req.Rules()
		if len(rules) == 0 {
			return "", false
		}
		k, ok := rules[0].AppendKey(nil, req)
		return string(k), ok
	}
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one, ok := key(a, b)
		two, also := key(c, d)
		if ok != (a != "" && b != "") || also != (c != "" && d != "") {
			t.Fatalf("keys of (%q, %q) and (%q, %q): %v and %v, want them where no part is empty", a, b, c, d, ok, also)
		}
		if same := a == c && b == d; ok && also && (one == two) != same {
			t.Fatalf("keys of (%q, %q) and (%q, %q) are equal: %v, want %v", a, b, c, d, one == two, same)
		}
	})
}

// TestKeysOfLongParts: were lengths written in one byte or in two, the second
// pair would read like the first, its long part standing where the first has
// the head of the other.
func TestKeysOfLongParts(t *testing.T) {
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "pair", Key: []string{"a", "b"}}}})
	key := func(a, b string) string {
		req := request(ns, map[string]string{"a": a, "b": b})
		defer req.Release()
		k, ok := req.Rules()[0].AppendKey(nil, req)
		if !ok {
			t.Fatalf("no key of parts of %d and %d bytes", len(a), len(b))
		}
		return string(k)
	}
	for bytes, head := range map[int]string{1: "s\x01", 2: "s\x00\x01"} {
		fill := strings.Repeat("x", 1<<(8*bytes)-len(head))
		if key("a", fill+head+"r") == key("a"+head+fill, "r") {
			t.Errorf("two pairs have the same key: lengths are told apart by %d bytes only", bytes)
		}
	}
}

// Counters are named by what AppendKey appends, whichever way it is put together.
func TestTextIsTheKey(t *testing.T) {
	for _, tt := range []struct {
		key    []string
		isText bool
	}{
		{[]string{"user"}, true},
		{[]string{"client_ip"}, false},
		{[]string{"user", "tenant"}, false},
		{nil, false},
	} {
		ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "r", Key: tt.key}}})
		for _, user := range []string{"u", strings.Repeat("long", 100), "192.0.2.1"} {
			req := request(ns, map[string]string{"user": user, "tenant": "t"})
			req.SetHTTP("GET", "/", "h", "192.0.2.1", nil)
			r := req.Rules()[0]
			if got := r.KeyIsText(); got != tt.isText {
				t.Fatalf("key of %v is a text: %v, want %v", tt.key, got, tt.isText)
			}
			want, ok := r.AppendKey(nil, req)
			if !ok {
				t.Fatalf("no key of %v", tt.key)
			}
			if tt.isText {
				if got := string(limit.TextMark) + r.Text(req); got != string(want) {
					t.Errorf("key of %v = %q, want %q", tt.key, got, want)
				}
			}
			req.Release()
		}
	}
}
