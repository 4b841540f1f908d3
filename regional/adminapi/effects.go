package adminapi

import (
	"fmt"
	"math"
	"time"

	"github.com/spillgate/spillgate/configs"
	"github.com/spillgate/spillgate/edge/limit"
	"github.com/spillgate/spillgate/regional"
)

// Effect is what a limit that is smaller than the one in force would have denied of what counted
// in that within the last hour.
type Effect struct {
	Rule  string    `json:"rule"`
	Rate  string    `json:"rate"`
	Since time.Time `json:"since"` // within the last hour, it has been counted from then on
	regional.Denied
}

// effects are those of a namespace's rules, as far as the aggregator has counted.
func (b *Rulebook) effects(now time.Time, namespace string, set *limit.Set) []Effect {
	out := []Effect{}
	for _, rule := range set.Rules() {
		if rule.Namespace != namespace || !rule.Enforced() {
			continue
		}
		for _, rate := range rule.Rates {
			if p, known := b.subject.Passed(now, namespace, rule.Name, rate.Name); known {
				if d, less := p.Denied(rate); less {
					out = append(out, Effect{Rule: rule.Name, Rate: rate.Name, Since: p.Since, Denied: d})
				}
			}
		}
	}
	return out
}

// worthTelling is the part that would have been denied from which on it is warned of.
const worthTelling = 0.01

// suspicious are the effects that are warned of.
func suspicious(effects []Effect) (told []configs.Effect) {
	for _, e := range effects {
		if e.Part >= worthTelling {
			told = append(told, configs.Effect{Rule: e.Rule, Rate: e.Rate, Detail: fmt.Sprintf("this would have denied %v %% of the last hour's traffic in %s.%s: of what this aggregator saw counted since %s UTC, in %d of %d windows of a key",
				percentOf(e.Part), e.Rule, e.Rate, e.Since.Format("15:04"), e.Windows, e.Of)})
		}
	}
	return told
}

// percentOf is a part in percent, 100 where it is all.
func percentOf(part float64) float64 {
	if part < 1 {
		return min(math.Round(part*1000)/10, 99.9)
	}
	return 100
}
