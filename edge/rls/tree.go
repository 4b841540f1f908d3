package rls

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	rlv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// A domain whose rules are a tree of descriptors, as the reference's files have them, is
// decided as the reference decides: what follows is what differs from our own rules. All
// descriptors are counted, be one of them over its limit (but see countOver), each in the windows of its
// unit since the Unix epoch; statuses say what the reference's do.

// addByTree makes the request of a descriptor; one that meets no limit of the tree meets
// no rule.
func (c *call) addByTree(tree *limit.Descriptors, in *rlsv3.RateLimitRequest, d *rlv3.RateLimitDescriptor) {
	req := c.ns.NewRequest()
	c.reqs = append(c.reqs, req)
	costs(req, in, d)
	if d.Limit != nil {
		if unit := unitOf(d.Limit); limit.AskOverride(tree, req, "", d.Entries, unit, d.Limit.RequestsPerUnit) {
			c.met, c.keys = append(c.met, &limit.DescriptorLimit{Requests: d.Limit.RequestsPerUnit, Unit: unit}), append(c.keys, "")
			return
		}
	}
	met, key := limit.FindDescriptor(tree, d.Entries)
	c.met, c.keys = append(c.met, met), append(c.keys, key)
}

// replace leaves out the limits that others of the call take the place of.
func (c *call) replace() {
	for _, l := range c.met {
		if l == nil {
			continue
		}
		for _, name := range l.Replaces {
			for i, other := range c.met {
				if other != nil && other.Name == name && !other.Unlimited && c.keys[i] != "" {
					c.keys[i] = ""
					c.replaced = append(c.replaced, i)
				}
			}
		}
	}
}

// decideByTree decides about all descriptors, in their order.
func (c *call) decideByTree(ctx context.Context, tree *limit.Descriptors, in *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	c.replace()
	out, rows := answer(len(c.reqs))
	c.judged = slices.Grow(c.judged, len(c.reqs))[:len(c.reqs)]
	if c.asOne() {
		c.countOver(tree, in)
	}
	told, over, quotas, quotasOver := -1, 0, 0, 0
	for i, req := range c.reqs {
		j, l, gives := &c.judged[i], c.met[i], in.Descriptors[i].IsNegativeHits
		if slices.Contains(c.replaced, i) {
			l = nil
		} else if l != nil && c.keys[i] != "" {
			tree.Ask(req, l, c.keys[i])
		}
		if gives && !req.Peek {
			*j = c.serving.GiveBack(req, c.now)
		} else {
			c.now = c.serving.Judge(ctx, req, c.now, j)
		}
		if l == nil {
			continue
		}
		denied := rows[i].describeByTree(l, j, req.Peek, gives, c.serving.Time(c.now))
		switch {
		case l.Quota && !l.Unlimited:
			quotas++
			if denied {
				quotasOver++
			}
		case denied:
			over++
		}
		if denied && (told < 0 || tighter(j, &c.judged[told])) {
			told = i
		}
	}
	c.serving.Judged(c.began)
	if over > 0 || quotas > 0 && quotasOver == quotas {
		out.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		c.tell(out, &c.judged[told])
	}
	c.addMetadata(out, in)
	return out
}

// countOver has those alone be counted that are over their limit with this call, where some
// are, as the reference does by STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT: be they in shadow, or of
// a quota, which let the call pass.
func (c *call) countOver(tree *limit.Descriptors, in *rlsv3.RateLimitRequest) {
	over := make([]bool, len(c.reqs))
	for i, req := range c.reqs {
		l := c.met[i]
		if l == nil || l.Unlimited || slices.Contains(c.replaced, i) || in.Descriptors[i].IsNegativeHits {
			continue
		}
		if c.keys[i] != "" {
			tree.Ask(req, l, c.keys[i])
		}
		d := c.serving.Ahead(req, c.now)
		if over[i] = !d.Allowed || d.Zone == limit.ZoneShadow; req.Peek {
			over[i] = d.Basis.Local+d.Basis.Merged > uint64(l.Requests)
		}
	}
	if !slices.Contains(over, true) {
		return
	}
	for i, req := range c.reqs {
		req.Peek = req.Peek || !over[i] && !in.Descriptors[i].IsNegativeHits
	}
}

// describeByTree fills in a descriptor's status, and says whether it is over its limit. A
// look says how things stand: it is over where more is used than the limit, not where
// nothing is left.
func (r *row) describeByTree(l *limit.DescriptorLimit, j *httpapi.Judgement, looks, gives bool, now time.Time) (over bool) {
	if l.Unlimited {
		r.status.LimitRemaining = math.MaxUint32
		return false
	}
	d := j.Decision()
	at := slices.IndexFunc(units, func(u unit) bool { return u.length == l.Unit })
	r.limit.Name, r.limit.RequestsPerUnit, r.limit.Unit = l.Name, l.Requests, units[at].told
	seconds := int64(l.Unit / time.Second)
	r.reset.Seconds = seconds - now.Unix()%seconds
	r.status.CurrentLimit, r.status.DurationUntilReset, r.status.LimitRemaining = &r.limit, &r.reset, clamped(d.Remaining)
	switch {
	case gives:
		return false
	case looks && !l.Shadow:
		over = d.Basis.Local+d.Basis.Merged > uint64(l.Requests)
	default:
		over = !d.Allowed
	}
	if over {
		r.status.Code, r.status.LimitRemaining = rlsv3.RateLimitResponse_OVER_LIMIT, 0
	}
	return over
}

// addMetadata tells what the limits that admitted say, where they say something; of what
// several say the first counts.
func (c *call) addMetadata(out *rlsv3.RateLimitResponse, in *rlsv3.RateLimitRequest) {
	said := map[string]any{}
	for i, l := range c.met {
		if l != nil && len(l.Metadata) > 0 && out.Statuses[i].Code == rlsv3.RateLimitResponse_OK && !l.Unlimited && !slices.Contains(c.replaced, i) {
			merge(said, l.Metadata)
		}
	}
	if len(said) == 0 {
		return
	}
	of, err := structpb.NewStruct(said)
	if err != nil {
		return // a text that is no UTF-8: the reader of rules lets none pass
	}
	if out.DynamicMetadata == nil {
		out.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"domain": structpb.NewStringValue(in.Domain)}}
	}
	fields := out.DynamicMetadata.Fields
	fields["metadata"] = structpb.NewStructValue(of)
	fields["descriptors"] = structpb.NewListValue(&structpb.ListValue{Values: described(in.Descriptors)})
	if in.HitsAddend != 0 {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(in.HitsAddend))
	}
}

// merge adds what is not said yet.
func merge(to, from map[string]any) {
	for key, value := range from {
		before, said := to[key]
		of, nested := value.(map[string]any)
		if deeper, ok := before.(map[string]any); said && ok && nested {
			merge(deeper, of)
		} else if !said && nested { // a copy: what is told belongs to the rules
			deeper = map[string]any{}
			merge(deeper, of)
			to[key] = deeper
		} else if !said {
			to[key] = value
		}
	}
}

// described are descriptors as the reference tells them.
func described(descriptors []*rlv3.RateLimitDescriptor) (list []*structpb.Value) {
	for _, d := range descriptors {
		var entries []*structpb.Value
		for _, e := range d.GetEntries() {
			entries = append(entries, structpb.NewStringValue(strings.ToValidUTF8(e.GetKey()+"="+e.GetValue(), "\uFFFD")))
		}
		fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
		if d.GetLimit() != nil {
			fields["limit"] = structpb.NewStringValue(d.Limit.String())
		}
		if a := d.GetHitsAddend(); a != nil {
			fields["hitsAddend"] = structpb.NewNumberValue(float64(a.Value))
		}
		list = append(list, structpb.NewStructValue(&structpb.Struct{Fields: fields}))
	}
	return list
}
