package proc

import "testing"

func TestFreeAddrIsGivenOnce(t *testing.T) {
	given := map[string]bool{}
	for range 1000 { // of 12000: without memory some come twice
		addr := FreeAddr(t)
		if given[addr] {
			t.Fatalf("FreeAddr returned %s twice", addr)
		}
		given[addr] = true
	}
}
