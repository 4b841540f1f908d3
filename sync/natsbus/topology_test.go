package natsbus

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	deltasync "github.com/spillgate/spillgate/sync"
	"github.com/spillgate/spillgate/sync/bustest"
	"github.com/spillgate/spillgate/test/proc"
)

// as is a bus's settings as a user of deploy/nats/users.conf.
func as(t testing.TB, users *proc.NATSUsers, user, inbox string, urls ...string) Config {
	t.Helper()
	return Config{URLs: urls, NKeySeedFile: users.SeedFile(t, user), InboxPrefix: inbox}
}

// operator is a connection that sees and says what it likes.
func operator(t testing.TB, users *proc.NATSUsers, url string) *nats.Conn {
	t.Helper()
	key, err := nats.NkeyOptionFromSeed(users.SeedFile(t, "OPERATOR"))
	if err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(url, key)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// settler returns what waits until each server knows of all subscriptions that
// the others had before. A server tells others in the order in which it hears,
// so it is enough to wait for one that is made now. No bus hands over what is
// published on an inbox, so that the tests' own subscribers do not hear it.
func settler(t testing.TB, users *proc.NATSUsers, urls ...string) func() {
	t.Helper()
	var conns []*nats.Conn
	for _, url := range urls {
		conns = append(conns, operator(t, users, url))
	}
	var made atomic.Int64
	knows := func(there, here *nats.Conn) error {
		subject := fmt.Sprint(inboxPrefix+"_settle.", made.Add(1))
		sub, err := here.SubscribeSync(subject)
		if err != nil {
			return err
		}
		defer sub.Unsubscribe() // the connection ends soon
		if err := here.Flush(); err != nil {
			return err
		}
		for end := time.Now().Add(heals); time.Now().Before(end); {
			if err := there.Publish(subject, nil); err != nil {
				return err
			}
			if _, err := sub.NextMsg(10 * time.Millisecond); err == nil {
				return nil
			}
		}
		return fmt.Errorf("%s did not hear of a subscription at %s within %v", there.ConnectedUrl(), here.ConnectedUrl(), heals)
	}
	return func() {
		for _, there := range conns {
			for _, here := range conns {
				if there == here {
					continue
				}
				if err := knows(there, here); err != nil {
					t.Errorf("settle: %v", err)
				}
			}
		}
	}
}

// suite runs bustest with one bus at each URL. As the operator: the suite has
// subjects of its own.
func suite(t *testing.T, users *proc.NATSUsers, a, b string, near bool) {
	t.Helper()
	bustest.RunWide(t, bustest.Wide{
		Open: func(t *testing.T) (deltasync.Bus, deltasync.Bus) {
			return connect(t, as(t, users, "OPERATOR", "", a)), connect(t, as(t, users, "OPERATOR", "", b))
		},
		Settle: settler(t, users, a, b),
		Near:   near,
	})
}

func TestBusOverCluster(t *testing.T) {
	users := proc.NewNATSUsers(t)
	urls := proc.NATSCluster(t, users, "eu", 3).URLs()
	suite(t, users, urls[0], urls[1], false)
}

func TestBusOverLeaf(t *testing.T) {
	users := proc.NewNATSUsers(t)
	hub := proc.NATSCluster(t, users, "eu", 1)
	leaf := proc.NATSLeaf(t, users, "OPERATOR", hub.Leafs[0])
	suite(t, users, hub.Servers[0].URL, leaf.URL, true)
}

func TestBusOverGateways(t *testing.T) {
	users := proc.NewNATSUsers(t)
	sites := proc.NATSGateways(t, users, "eu", "us", "ap")
	suite(t, users, sites["eu"].URLs()[0], sites["us"].URLs()[0], true)
}
