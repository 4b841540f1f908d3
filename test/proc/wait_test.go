package proc

import "testing"

func TestFreeAddrIsGivenOnce(t *testing.T) {
	given := map[string]bool{}
	for range 400 { // of 1500: without memory some come twice
		addr := FreeAddr(t)
		if given[addr] {
			t.Fatalf("FreeAddr returned %s twice", addr)
		}
		given[addr] = true
	}
}
