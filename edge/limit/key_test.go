package limit_test

import (
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

// Parts of any length up to more than two bytes can tell stay apart.
func TestKeysOfLongParts(t *testing.T) {
	ns := compileNamespace(t, limit.Document{Rules: []limit.RuleSpec{{Name: "pair", Key: []string{"a", "b"}}}})
	long := make([]byte, 1<<17)
	for i := range long {
		long[i] = 's'
	}
	seen := map[string]int{}
	for _, cut := range []int{1, 2, 255, 256, 257, 65535, 65536, 65541, 1<<17 - 5, 1<<17 - 1} {
		req := request(ns, map[string]string{"a": string(long[:cut]), "b": string(long[cut:])})
		key, ok := req.Rules()[0].AppendKey(nil, req)
		if other, taken := seen[string(key)]; !ok || taken {
			t.Errorf("cut at %d: %v, the key of the cut at %d; want one of its own", cut, ok, other)
		}
		seen[string(key)] = cut
		req.Release()
	}
}
