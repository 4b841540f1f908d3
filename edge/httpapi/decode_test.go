package httpapi

import (
	"encoding/json"
	"testing"
)

// FuzzCheckBody compares the decoder with encoding/json: what we accept is
// JSON, and says what we read in it.
func FuzzCheckBody(f *testing.F) {
	for _, seed := range []string{
		`{"namespace":"acme","attributes":{"user":"u1","x":"\u00e9\ud83d\ude00\n"},"cost":5,"peek":true}`,
		`{"checks":[{"attributes":{}},{"cost":-1},{"x":[1,{"y":null}]}]}`,
		`{"cost":1e9}`, `{"a":"\ud800"}`, "\xef\xbb\xbf{}", `[[[[`, `{"attributes":{"a":"b","a":"c"}}`, ` { } `,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d decoder
		if bad := d.batch(text); bad == nil && !json.Valid([]byte(text)) {
			t.Errorf("the batch decoder takes %q, which is no JSON", text)
		}
		bad := d.check(text)
		if bad != nil {
			if bad.status != 400 || bad.field == "" || bad.detail == "" || len(bad.Error()) > 600 {
				t.Errorf("check(%q): %+v: no status, field or message, or too long", text, bad)
			}
			return
		}
		var want struct {
			Namespace  string
			Attributes map[string]string
			Cost       uint64
			Peek       bool
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("the decoder takes %q; encoding/json: %v", text, err)
		}
		c := d.calls[0]
		attributes := d.attributes[c.first:c.last]
		if c.namespace != want.Namespace || c.cost != want.Cost || want.Peek && !c.peek || len(attributes) != len(want.Attributes) {
			t.Errorf("check(%q) = %+v, %v; encoding/json reads %+v", text, c, attributes, want)
		}
		for _, a := range attributes {
			if want.Attributes[a.name] != a.value {
				t.Errorf("check(%q): %s = %q, want %q", text, a.name, a.value, want.Attributes[a.name])
			}
		}
	})
}

// FuzzReportBody is FuzzCheckBody for reports.
func FuzzReportBody(f *testing.F) {
	for _, seed := range []string{
		`{"namespace":"acme","attributes":{"user":"u1","response.status":"401"},"answered":true}`,
		`{"cost":-5,"attributes":{"user":"u1"}}`, `{"cost":-0}`, `{"cost":--1}`, `{"cost":0,"answered":1}`, `{"peek":true}`,
		`{"answered":true,"cost":-9007199254740992,"attributes":{"response.code":"OK"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d decoder
		if bad := d.report(text); bad != nil {
			if bad.status != 400 || bad.field == "" || bad.detail == "" || len(bad.Error()) > 600 {
				t.Errorf("report(%q): %+v: no status, field or message, or too long", text, bad)
			}
			return
		}
		var want struct {
			Namespace  string
			Attributes map[string]string
			Cost       *int64
			Answered   bool
		}
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatalf("the decoder takes %q; encoding/json: %v", text, err)
		}
		c := d.calls[0]
		cost := int64(c.cost)
		if c.giveBack {
			cost = -cost
		}
		if c.namespace != want.Namespace || c.answered != want.Answered || c.peek || len(d.attributes) != len(want.Attributes) ||
			want.Cost == nil && cost != 0 || want.Cost != nil && (cost != *want.Cost || cost == 0) {
			t.Errorf("report(%q) = %+v, %v; encoding/json reads %+v", text, c, d.attributes, want)
		}
		if c.answered && c.giveBack {
			t.Errorf("report(%q) charges and gives back", text)
		}
	})
}

func FuzzAuthQuery(f *testing.F) {
	f.Add("deny_status=403&cost=5&fail=open")
	f.Add("&&=%&cost=99999999999999999999")
	f.Fuzz(func(t *testing.T, query string) {
		o, bad := parseAuthOptions(query)
		if bad == nil && (o.cost > maxCost || o.denyStatus != 0 && (o.denyStatus < 400 || o.denyStatus > 599)) {
			t.Errorf("parseAuthOptions(%q) = %+v", query, o)
		}
		if bad != nil && len(bad.Error()) > 400 {
			t.Errorf("parseAuthOptions(%q): the message is %d bytes long", query, len(bad.Error()))
		}
	})
}

// FuzzString checks that whatever stands in a message is JSON again.
func FuzzString(f *testing.F) {
	f.Add("plain \"quoted\" \\ \x00 é \xff <script>")
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		if err := json.Unmarshal(appendString(nil, s), &got); err != nil {
			t.Fatalf("appendString(%q): %v", s, err)
		}
		raw, _ := json.Marshal(s)
		var want string
		if err := json.Unmarshal(raw, &want); err != nil || got != want {
			t.Errorf("appendString(%q) reads as %q, want %q", s, got, want)
		}
	})
}

func TestDecodeAllocatesOnlyTheText(t *testing.T) {
	const text = `{"namespace":"acme","attributes":{"user":"u1","client_ip":"2001:db8::1","method":"GET","path":"/api/x"},"cost":1,"peek":false}`
	var d decoder
	if n := testing.AllocsPerRun(1000, func() {
		if bad := d.check(text); bad != nil {
			t.Fatal(bad)
		}
	}); n != 0 {
		t.Errorf("reading a plain body allocates %v times, want 0", n)
	}
}
