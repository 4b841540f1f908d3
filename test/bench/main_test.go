package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHere finds the nested module, whose own tests ./test/run runs.
func TestHere(t *testing.T) {
	dir, err := here(t.Context())
	if err != nil {
		t.Fatalf("here: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "rivals", "go.mod")); err != nil {
		t.Errorf("the module of the rivals is not below %s: %v", dir, err)
	}
}
