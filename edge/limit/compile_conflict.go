package limit

// conflicts refuses words of a rule that contradict one another.
func (c *compiler) conflicts(path string, spec *RuleSpec, r *Rule) {
	if spec.CountWhen != "" {
		c.countedLate(path, spec, r)
	}
}

// countedLate refuses what counts on a charge at the decision in rules that
// charge after the response: until then nothing is in the way of the next
// request, so that all would be promised the same place.
func (c *compiler) countedLate(path string, spec *RuleSpec, r *Rule) {
	const code, hint = "E219", "drop it, or count_when"
	for i, rate := range spec.Rates {
		switch at := indexed(path+".rates", i); {
		case rate.Queue:
			c.problem(at+".queue", code, hint, "count_when charges after the response: all that come before it would have the same turn")
		case r.Rates[i].Lease > 0:
			c.problem(at+".algorithm", code, hint, "count_when charges after the response: a slot would be taken when the request is over, and nobody gives it back")
		}
	}
	if spec.MaxDelay > 0 {
		c.problem(path+".max_delay", code, hint, "count_when charges after the response: all that come before it would wait for the same room")
	}
	if spec.Charge == ChargeEach.String() {
		c.problem(path+".charge", code, hint, "count_when charges after the response, and a request that was denied has none")
	}
}
