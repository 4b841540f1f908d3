package cli

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/configs"
)

// Every metric that daemons tell of themselves has a help text and a name that
// Prometheus accepts, and the version stands in a label.
func TestRegistry(t *testing.T) {
	families, err := Registry("v1.2.3").Gather()
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`^(go|process|spillgate)_[a-z0-9_]+$`)
	version := ""
	for _, f := range families {
		if !name.MatchString(f.GetName()) {
			t.Errorf("metric %q: want go_, process_ or spillgate_ and snake case", f.GetName())
		}
		if f.GetHelp() == "" {
			t.Errorf("metric %q has no help", f.GetName())
		}
		if f.GetName() == "spillgate_build_info" {
			version = f.GetMetric()[0].GetLabel()[0].GetValue()
		}
	}
	if version != "v1.2.3" {
		t.Errorf("spillgate_build_info has version %q, want v1.2.3", version)
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log := Logger(&b, configs.LogSettings{Level: slog.LevelWarn, Format: "json"})
	log.Info("quiet")
	log.Warn("loud", "edge", "e1")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil || line["msg"] != "loud" || line["edge"] != "e1" {
		t.Errorf("logged %q (%v), want one line of JSON", &b, err)
	}
	b.Reset()
	Logger(&b, configs.LogSettings{Level: slog.LevelInfo, Format: "text"}).Info("plain")
	if !strings.Contains(b.String(), "level=INFO msg=plain") {
		t.Errorf("logged %q, want text", &b)
	}
}
