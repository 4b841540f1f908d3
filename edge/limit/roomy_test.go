package limit

import (
	"testing"
	"unsafe"
)

// What is smaller the allocator does not align to cache lines.
func TestRequestsShareNoCacheLine(t *testing.T) {
	if size := unsafe.Sizeof(roomyRequest{}); unsafe.Sizeof(uintptr(0)) == 8 && size < 512 {
		t.Errorf("a request takes %d bytes, want 512 or more", size)
	}
}
