package configs

import (
	"errors"
	"strings"
	"testing"
)

func TestUnknownVariables(t *testing.T) {
	for _, tc := range []struct {
		variable string
		want     string // "": it is nobody's mistake
	}{
		{"SPILLGATE_LISTN=:1", "environment SPILLGATE_LISTN: E007 no setting has this name (hint: did you mean SPILLGATE_LISTEN?)"},
		{"SPILLGATE_SYNC_INTERVALL=1s", "did you mean SPILLGATE_SYNC_INTERVAL?"},
		{"SPILLGATE_CONFG=x", "did you mean SPILLGATE_CONFIG?"},
		{"SPILLGATE_secret=hunter2", "did you mean SPILLGATE_SECRET?"},
		{"SPILLGATE_MICROWAVE=1", "hint: unset it"},
		{"SPILLGATE_=1", "hint: unset it"},
		{"SPILLGATE_EXPORT=1", "hint: unset it"}, // ends in PORT, and is no service link
		{"SPILLGATE_" + strings.Repeat("X", 1<<16) + "=1", "hint: unset it"},
		{"SPILLGATE_CONFIG=x", ""},
		{"SPILLGATE_LISTEN=:1", ""},
		{"SPILLGATE_REDIS_URL=redis://h", ""}, // the aggregator's
		{"SPILLGATE_LISTN=", ""},
		{"SPILLGATE=1", ""},
		{"SPILLGATELISTN=1", ""},
		{"LISTN=1", ""},
		{"SPILLGATE_SERVICE_HOST=10.0.0.1", ""},
		{"SPILLGATE_EDGE_SERVICE_HOST=10.0.0.1", ""},
		{"SPILLGATE_EDGE_SERVICE_PORT=80", ""},
		{"SPILLGATE_EDGE_SERVICE_PORT_HTTP=80", ""},
		{"SPILLGATE_PORT=tcp://10.0.0.1:80", ""},
		{"SPILLGATE_EDGE_PORT=tcp://10.0.0.1:80", ""},
		{"SPILLGATE_EDGE_PORT_80_TCP_ADDR=10.0.0.1", ""},
	} {
		mistakes := unknownVariables([]string{"HOME=/", tc.variable}, edgeTable(&EdgeSettings{}, &secretFrom{}))
		err := ""
		if len(mistakes) > 0 {
			err = (&SettingsError{Mistakes: mistakes}).Error()
		}
		if tc.want == "" && err != "" || !strings.Contains(err, tc.want) || strings.Contains(err, "hunter2") || len(err) > 300 {
			t.Errorf("%.60s: %q, want %q", tc.variable, err, tc.want)
		}
	}
}

func TestAnUnknownVariableIsAMistake(t *testing.T) {
	cleanEnv(t)
	t.Setenv("SPILLGATE_LISTN", ":1")
	t.Setenv("SPILLGATE_REDIS_URL", "redis://h")
	_, err := loadEdge(t, "--region", "eu", "--rules-path", "r", "--secret", testSecret)
	var e *SettingsError
	if !errors.As(err, &e) || len(e.Mistakes) != 1 || !strings.Contains(err.Error(), "SPILLGATE_LISTEN?") {
		t.Errorf("error %v, want one mistake about SPILLGATE_LISTN", err)
	}
	_, err = loadEdge(t, "-c", "none.yaml") // and beside a file that cannot be read
	if !errors.As(err, &e) || len(e.Mistakes) != 2 {
		t.Errorf("error %v, want two mistakes", err)
	}
	if _, err := loadAggregator(t, "--region", "eu"); err == nil || !strings.Contains(err.Error(), "SPILLGATE_LISTN") {
		t.Errorf("the aggregator takes it: %v", err)
	}
}
