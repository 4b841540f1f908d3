package configs

import (
	"fmt"
	"strings"
	"testing"
)

// manyRulesText is a file as tools write it for a large API.
func manyRulesText(n int) []byte {
	var b strings.Builder
	b.WriteString("schema: spillgate/v1\nnamespace: acme\nkeys: {tenant: {from: header.X-Tenant}}\nrules:\n")
	for i := range n {
		fmt.Fprintf(&b, "- name: rule-%d\n  priority: %d\n", i, i%100)
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "  match: {path: /v1/items/%d/**, methods: [GET, POST]}\n", i)
		case 1:
			fmt.Fprintf(&b, "  match: {equals: {tenant: t%d}}\n", i)
		case 2:
			fmt.Fprintf(&b, "  match: {host: h%d.example.com}\n", i)
		default:
			fmt.Fprintf(&b, "  match: {cidr: 10.%d.%d.0/24}\n", i>>8&255, i&255)
		}
		b.WriteString("  key: client_ip\n  rates:\n  - {limit: 100, per: 1m}\n")
	}
	return []byte(b.String())
}

func BenchmarkParseRules(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		text := manyRulesText(n)
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseRules("rules.yaml", text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
