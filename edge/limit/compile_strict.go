package limit

import "time"

// LeastStrictWait and MostStrictWait bound how long a request may wait for rights:
// claims leave every 20 ms, and after five seconds whoever asked has given up.
const (
	LeastStrictWait = 20 * time.Millisecond
	MostStrictWait  = 5 * time.Second
)

// strictWait reads how long requests wait for an edge's first rights.
func (c *compiler) strictWait(path string, spec *RateSpec, r *Rate) {
	const code = "E226"
	at := path + ".strict_wait"
	switch {
	case spec.StrictWait == 0:
	case r.Consistency != Strict:
		c.problem(at, code, "consistency: strict, or leave it out", "only who needs rights waits for them, and this rate is %s", r.Consistency)
	case r.Scope == ScopeEdge:
		c.problem(at, code, "leave it out", "a limit of each edge's own has its rights there, and nothing to wait for")
	case spec.StrictWait < LeastStrictWait || spec.StrictWait > MostStrictWait:
		c.problem(at, code, "20ms to 5s, such as 250ms: a round trip to the farthest region, and some more", "a wait of %v is out of range", spec.StrictWait)
	default:
		r.StrictWait = spec.StrictWait
	}
}

// strict refuses what no holder of a part of the limit can decide by itself.
func (c *compiler) strict(path string, spec *RuleSpec, r *Rule) {
	const code = "E224"
	any := false
	for i, rate := range r.Rates {
		if rate.Consistency != Strict || i >= len(spec.Rates) {
			any = any || rate.Consistency == Strict
			continue
		}
		any = true
		switch at := indexed(path+".rates", i); {
		case rate.Queue:
			c.problem(at+".queue", code, "consistency: adaptive, or leave it out", "a queue cannot be strict: each edge would have a queue of its own")
		case rate.Drain.Floor > 0:
			c.problem(at+".initial", code, "consistency: adaptive, or leave it out", "what is given once, at the start, cannot be strict: it would be given again where a part of the limit comes back")
		}
	}
	switch {
	case !any:
	case spec.MaxDelay > 0:
		c.problem(path+".max_delay", code, "consistency: adaptive, or leave it out", "what waits for room cannot be strict: it is admitted before there is a right for it")
	case spec.CountWhen != "":
		c.problem(path+".count_when", code, "consistency: adaptive, or leave it out", "what is charged after the response cannot be strict: it is over by then")
	case spec.Margin.Elastic != ElasticSpec{}:
		c.problem(path+".margin.elastic", code, "consistency: adaptive, or margin: {soft: ...}", "an elastic margin cannot be strict: it opens and closes at each edge by itself")
	}
}
