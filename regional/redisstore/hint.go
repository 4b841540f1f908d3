package redisstore

import (
	"fmt"
	"strings"
)

// hints are what to mend in the settings where a server, or the client, says something.
// Those that say less stand last.
var hints = []struct{ says, also, hint string }{
	{"all sentinels specified", "redis: nil", "no sentinel knows the master by that name: redis.master_name is what stands in their `sentinel monitor NAME ...`"},
	{"all sentinels specified", "unknown command", "the addresses are no sentinels': leave redis.master_name out, or name the sentinels"},
	{"all sentinels specified", "NOAUTH", "the sentinels ask for a password: set redis.sentinel_password, and redis.sentinel_username"},
	{"all sentinels specified", "WRONGPASS", "the sentinels have another user or password: see redis.sentinel_username and redis.sentinel_password"},
	{"NOAUTH", "", "it asks for a password: set redis.password, and redis.username, or both in redis.url"},
	{"unauthenticated multibulk", "", "it asks for a password: set redis.password, and redis.username, or both in redis.url"},
	{"WRONGPASS", "", "it has another user or password: see redis.username and redis.password, or redis.url"},
	{"NOPERM", "", "its user may not do that: it needs the keys that begin with the region's prefix (sg-REGION), EVALSHA, EVAL, INFO and what the scripts call"},
	{"cluster support disabled", "", "it is no cluster's: leave redis.cluster out, and name one address"},
	{"MOVED ", "", "it is a node of a cluster: set redis.cluster: true"},
	{"CROSSSLOT", "", "it is a node of a cluster: set redis.cluster: true"},
	{"unknown command 'eval", "", "it is a sentinel, or no Redis: with sentinels set redis.master_name"},
	{"DB index is out of range", "", "redis.db is above what its `databases` has"},
}

// hinted is an error with what to mend, where that is known.
func hinted(err error) error {
	text := err.Error()
	for _, h := range hints {
		if strings.Contains(text, h.says) && strings.Contains(text, h.also) {
			return fmt.Errorf("%w (hint: %s)", err, h.hint)
		}
	}
	return err
}
