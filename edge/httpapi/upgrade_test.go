package httpapi

import (
	"net/http/httptest"
	"testing"
)

func TestAsksToSwitch(t *testing.T) {
	for upgrade, asks := range map[string]bool{
		"websocket": true, "foo, websocket": true, "IRC/6.9": true, "": false, " , ": false,
		"h2c": false, "H2C": false, "h2c-14": false, "h2-16": false, "\"h2c\"": false, "h2c;q=1": false, "HTTP/2.0": false, "HTTP2": false, "TLS/1.0": false, "h3": false, "websocket, h2c": false,
	} {
		for connection, named := range map[string]bool{"Upgrade": true, "keep-alive, upgrade": true, "close": false, "": false} {
			r := httptest.NewRequest("GET", "/", nil)
			r.Header.Set("Upgrade", upgrade)
			r.Header.Set("Connection", connection)
			if got := AsksToSwitch(r); got != (asks && named) {
				t.Errorf("Upgrade: %s, Connection: %s: %v, want %v", upgrade, connection, got, asks && named)
			}
			r.ProtoMinor = 0
			if AsksToSwitch(r) {
				t.Errorf("Upgrade: %s: of HTTP/1.0", upgrade)
			}
		}
	}
}
