package natsbus

import (
	"testing"
	"time"

	"github.com/spillgate/spillgate/test/proc"
)

// TestGatewayOfAClusterDies has regions of three servers each, all of them gateways,
// and kills those that carry what one region asks of the other: the server of who
// asks, then that of who answers. Nobody starts them again, and the regions go on.
func TestGatewayOfAClusterDies(t *testing.T) {
	t.Parallel()
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGatewayClusters(t, users, 3, "eu", "us")
	eu, us := sites["eu"], sites["us"]
	agg := connect(t, as(t, users, "OPERATOR", "", eu.URLs()[0]))
	hot := serveEcho(t, agg)
	var asking []*Bus
	for _, url := range us.URLs() {
		asking = append(asking, connect(t, as(t, users, "OPERATOR", "", url)))
	}
	work := func(what string) {
		t.Helper()
		since := time.Now()
		for _, b := range asking {
			works(t, b, hot)
		}
		t.Logf("%s: all get through after %v", what, time.Since(since))
	}
	work("as they start")
	us.Servers[0].Kill()
	work("without the server of who asks")
	if st := asking[0].Status(); st.Reconnects == 0 || st.Server == us.Servers[0].URL {
		t.Errorf("Status = %+v, want it at another server than %s", st, us.Servers[0].URL)
	}
	eu.Servers[0].Kill()
	work("without the server of who answers")
	if st := agg.Status(); st.Reconnects == 0 || st.Server == eu.Servers[0].URL {
		t.Errorf("Status = %+v, want it at another server than %s", st, eu.Servers[0].URL)
	}
}
