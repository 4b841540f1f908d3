package limit

import (
	"fmt"
	"strings"
	"time"
)

// scarceRights is how many rights of a strict limit there should be for each edge that
// shares it. Of fewer the authority lets nobody keep what others ask for (regional/escrow
// has the same), so that rights are on their way, where they are nobody's.
const scarceRights = 4

// scarce is what a topology makes of a strict rate: it is never exceeded, but of a small
// limit an edge may hold nothing when it is asked. nil: there is enough for each.
func (r *Rate) scarce(path string, t Topology) *Problem {
	edges := r.sharers(t)
	if r.Consistency != Strict || r.Scope == ScopeEdge || edges < 2 || r.Ceiling == 0 || r.Ceiling >= uint64(scarceRights*edges) {
		return nil
	}
	then := "is denied, be there room or not"
	if r.StrictWait > 0 {
		then = fmt.Sprintf("waits up to %v for one, and is denied if none comes", short(r.StrictWait))
	}
	return &Problem{Path: path, Code: "W232", Hint: r.plenty(t), Detail: fmt.Sprintf(
		"%s over %d edges is %.2g rights for each, and fewer than %d are scarce: they are pooled and move to who asks, but a request at an edge that holds none, as the first of a key is at each, %s",
		r.words(), edges, float64(r.Ceiling)/float64(edges), scarceRights, then)}
}

// sharers is how many edges share a limit.
func (r *Rate) sharers(t Topology) int {
	if r.Scope == ScopeRegion {
		return t.Largest
	}
	return t.Edges
}

// plenty is what would mend a scarce limit.
func (r *Rate) plenty(t Topology) string {
	var ways []string
	if r.StrictWait == 0 {
		ways = append(ways, "strict_wait: 1s")
	}
	most := uint64(scarceRights * r.sharers(t))
	if times := (most + r.Ceiling - 1) / r.Ceiling; !r.Bucket() && r.stretches() && times <= 1000 && time.Duration(times)*r.Window <= time.Hour {
		ways = append(ways, r.longer(times))
	}
	if r.Scope == ScopeGlobal && t.Regions > 1 && r.Ceiling >= uint64(scarceRights*t.Largest) {
		ways = append(ways, "scope: region, a limit for each")
	}
	return strings.Join(append(ways, "consistency: adaptive"), ", or ")
}
