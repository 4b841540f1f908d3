package trial

import "slices"

// loses are the faults by which a region may forget what it has told, or not know
// for a while what its other aggregators told, or be told what nobody counted.
var loses = []Fault{
	CrashServer, StoreDown, StoreDeaf, StoreWipe, StoreFailTo, ClockStep, Flap, KnowsNothing, Leave, Split, EvictServer, Flood, Hostile,
}

// verifyAudits holds audits to invariant 1, as they see it: nobody believes hits of
// a region that it does not know, unless it may have lost them.
func (t *trial) verifyAudits() {
	if slices.ContainsFunc(loses, func(f Fault) bool { return t.has[f] }) {
		return
	}
	for _, r := range t.regionNames {
		for _, v := range t.w.Servers(r) {
			if v.Aggregator() == nil {
				continue
			}
			for _, d := range v.Aggregator().Drift(t.w.NowAtServer(v)) {
				if d.Ahead != 0 {
					t.failf("1", "%s believed %d hits of %s that it does not know: %+v", v.Name, d.Ahead, d.Region, d)
				}
			}
		}
	}
}
