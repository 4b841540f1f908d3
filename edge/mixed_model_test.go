package edge

import "github.com/spillgate/spillgate/edge/limit"

// mixedCount is what the model knows of one rate and key.
type mixedCount struct {
	slices map[int64]int64 // cost by slice, of windows and slots
	log    []struct{ at, cost int64 }
	anchor int64 // of first_hit, with count
	count  int64
	level  int64 // of a bucket, times its Per, at some instant
	at     int64
	barred int64 // a penalty, until then
}

// used is what counts at now, times unit.
func (m *mixedCount) used(r *limit.Rate, now int64) (used, unit int64) {
	width, current, n := int64(r.Width), int64(r.SliceAt(now)), int64(r.Slices)
	left := width - (now - current*width)
	sum := func(from int64) (total int64) {
		for s, cost := range m.slices {
			if s >= from {
				total += cost
			}
		}
		return total
	}
	switch {
	case r.Algorithm == limit.FixedWindow:
		return sum(current), 1
	case r.Algorithm == limit.SlidingWindow:
		return sum(current) + m.slices[current-1]*left/width, 1 // rounded down
	case r.Oldest == limit.OldestFull: // concurrency too
		return sum(current - n), 1
	case r.Algorithm == limit.SubWindows:
		return sum(current-n+1)*width + m.slices[current-n]*left, width
	case r.Algorithm == limit.SlidingLog:
		for _, h := range m.log {
			if h.at+int64(r.Window) > now {
				used += h.cost
			}
		}
		return used, 1
	case r.Algorithm == limit.FirstHit:
		if now < m.anchor+int64(r.Window) {
			used = m.count
		}
		return used, 1
	}
	unit = int64(r.Drain.Per)
	if floor := int64(r.Drain.Floor) * unit; m.level > floor {
		return max(floor, m.level-int64(r.Drain.Refill)*(now-m.at)), unit
	}
	return m.level, unit
}

func (m *mixedCount) charge(r *limit.Rate, cost, now int64) {
	switch {
	case r.Bucket():
		level, unit := m.used(r, now)
		m.level, m.at = level+cost*unit, now
	case r.Algorithm == limit.FirstHit:
		if now >= m.anchor+int64(r.Window) {
			m.anchor, m.count = now, 0
		}
		m.count += cost
	case r.Algorithm == limit.SlidingLog:
		m.log = append(m.log, struct{ at, cost int64 }{now, cost})
	default:
		m.slices[int64(r.SliceAt(now))] += cost
	}
}
