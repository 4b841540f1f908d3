package edge

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillgate/spillgate/edge/limit"
)

// All mistakes are told at once.
func TestNewTellsAllMistakes(t *testing.T) {
	_, err := New(Config{Region: "EU", Lanes: -1, MaxBytes: 1})
	if err == nil {
		t.Fatal("no mistake found")
	}
	for _, field := range []string{"Region:", "Pop:", "Name:", "Secret:", "Lanes:", "MaxBytes:"} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q tells nothing of %s", err, field)
		}
	}
	if _, err := New(Config{Region: "eu", Pop: "fra", Name: "e1", Secret: []byte("short")}); err == nil || !strings.Contains(err.Error(), "Secret:") {
		t.Errorf("a secret of 5 bytes: %v", err)
	}
}

// A second node of one Registerer is told so, and what to do.
func TestTwoNodesOfOneRegisterer(t *testing.T) {
	registry := prometheus.NewRegistry()
	node := func(name string, reg prometheus.Registerer) error {
		_, err := New(Config{Region: "eu", Pop: "fra", Name: name, Secret: testSecret, Registerer: reg})
		return err
	}
	labeled := func(name string) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, registry)
	}
	if err := node("e1", labeled("e1")); err != nil {
		t.Fatal(err)
	}
	if err := node("e2", labeled("e1")); err == nil || !strings.Contains(err.Error(), "Registerer:") || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("a second node of one Registerer: %v, want an error that says what to do", err)
	}
	if err := node("e2", labeled("e2")); err != nil {
		t.Errorf("a second node with a label of its own: %v", err)
	}
	if _, err := registry.Gather(); err != nil {
		t.Errorf("gather: %v", err)
	}
}

// What says that conditions are not read says where to turn to.
func TestLocalNamesWhatReadsConditions(t *testing.T) {
	rule := perUser(limit.RateSpec{Limit: 1, Per: time.Minute})
	rule.Match.When = `user == "a"`
	if _, err := Local(rule); err == nil || !strings.Contains(err.Error(), "LocalWith") {
		t.Errorf("a rule with a condition: %v, want LocalWith named", err)
	}
}
