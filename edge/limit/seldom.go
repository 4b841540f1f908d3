package limit

import "time"

const (
	longestIdle = 2 * time.Minute
	longestFew  = time.Hour
)

// Idle is for how long an edge keeps rights of a strict rate that nobody asks it for, while nobody else needs
// them, so that the next request finds them; but each counter costs claims as long: all for two
// windows, up to longestIdle, and a few for one, up to longestFew. Who comes less often than that is
// denied each time, as what was granted then is returned before he comes again.
func (r *Rate) Idle() (all, few time.Duration) {
	all = min(max(2*r.Window, 10*time.Second), longestIdle)
	return all, max(all, min(r.Lasts(), longestFew))
}

// seldom warns of strict rates that deny who comes now and then, each time, though he is far below his limit.
func (c *compiler) seldom(at string, r *Rule) {
	if len(r.key) == 0 { // all who ask have one counter
		return
	}
	for i, rate := range r.Rates {
		_, few := rate.Idle()
		if rate.Consistency != Strict || rate.Scope == ScopeEdge || rate.StrictWait > 0 || few >= longestFew {
			continue
		}
		c.warn(indexed(at+".rates", i), "W265", "strict_wait: 250ms; or a window of an hour or more",
			"who asks an edge less often than once in %v is denied at his first request each time, be there room or not, as an edge without rights of his denies, and keeps none for longer", short(few))
	}
}
