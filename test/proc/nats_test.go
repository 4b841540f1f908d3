package proc

import "testing"

func TestNATS(t *testing.T) {
	s := NATS(t)
	if err := greets(t.Context(), s.URL[len("nats://"):]); err != nil {
		t.Errorf("after NATS: %v", err)
	}
	s.Restart()
	if err := greets(t.Context(), s.URL[len("nats://"):]); err != nil {
		t.Errorf("after Restart: %v", err)
	}
}
