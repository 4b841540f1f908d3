package natsbus

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// nkeyFile is a user's seed in a file, which may be replaced: each connection is made with the key that
// it has then. nats.go signs by what is in the file, and tells the server whose key that is by what was
// in it first.
type nkeyFile struct {
	path   string
	dialer net.Dialer
	conn   atomic.Pointer[nats.Conn] // whose user it is; nil: the first one goes on
}

// option has a connection be of the user.
func (f *nkeyFile) option() (nats.Option, error) {
	user, err := nats.NkeyOptionFromSeed(f.path)
	if err != nil {
		return nil, fmt.Errorf("nkey: %s: %w", f.path, err)
	}
	return func(o *nats.Options) error {
		o.CustomDialer = f
		return user(o)
	}, nil
}

// Dial implements nats.CustomDialer. The connection is locked, as nobody else reads its options.
func (f *nkeyFile) Dial(network, address string) (net.Conn, error) {
	if conn := f.conn.Load(); conn != nil {
		if user, err := f.user(); err == nil { // else the server says so
			conn.Opts.Nkey = user
		}
	}
	return f.dialer.Dial(network, address)
}

// user is the public half of the key.
func (f *nkeyFile) user() (string, error) {
	seed, err := os.ReadFile(f.path)
	if err != nil {
		return "", err
	}
	defer clear(seed)
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return "", err
	}
	defer pair.Wipe()
	return pair.PublicKey()
}
