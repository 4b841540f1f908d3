package cli

import (
	"log/slog"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/sync/natsbus"
)

// NATS is how a daemon reaches its servers. inbox is what its replies are
// addressed to, so that permissions can keep one from reading another's.
func NATS(s configs.NATSSettings, name, inbox string, log *slog.Logger) natsbus.Config {
	return natsbus.Config{
		URLs: s.URLs, Name: name, InboxPrefix: "_INBOX_" + inbox,
		CAFile: s.TLSCA, CertFile: s.TLSCert, KeyFile: s.TLSKey,
		CredsFile: s.Creds, NKeySeedFile: s.NKey, Logger: log,
	}
}
