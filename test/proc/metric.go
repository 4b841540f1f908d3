package proc

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Metric reads one series of a daemon, such as
// `spillgate_degraded{reason="sync"}`. admin is the URL of its admin listener.
func Metric(admin, series string) (float64, error) {
	values, err := Metrics(admin, series)
	if err != nil {
		return 0, err
	}
	return values[0], nil
}

// Metrics reads several series as they were at one instant.
func Metrics(admin string, series ...string) ([]float64, error) {
	resp, err := http.Get(admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s/metrics: %w", admin, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s/metrics: %s: %s", admin, resp.Status, text)
	}
	values := make([]float64, len(series))
	for i, name := range series {
		_, rest, found := strings.Cut("\n"+string(text), "\n"+name+" ")
		if !found {
			return nil, fmt.Errorf("%s/metrics has no %s", admin, name)
		}
		value, _, _ := strings.Cut(rest, "\n")
		if values[i], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("%s/metrics: %s: %w", admin, name, err)
		}
	}
	return values, nil
}
