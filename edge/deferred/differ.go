package deferred

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Difference is a setting of JetStream's that is not as it is to be.
type Difference struct {
	Setting  string // as JetStream's API names it
	Is, Want string // "none" where it is not set

	fixed  bool // JetStream cannot change it
	stands bool // the queue works with it all the same
}

func (d Difference) String() string { return fmt.Sprintf("%s is %s, want %s", d.Setting, d.Is, d.Want) }

var (
	// others are settings that are none of the queue's: where it lies and how, and what servers
	// and clients add.
	others = []string{"metadata", "description", "placement", "compression", "first_seq", "name", "durable_name", "max_waiting", "pause_until"}
	// harms are those with which the queue loses requests, or cannot have them done; sizes those
	// with which it works whatever they are, but not if there is none, or one that is not wanted;
	// needs those that it cannot be without, and that do no harm where they are not wanted. With
	// all others it works.
	harms = []string{"retention", "storage", "persist_mode", "discard", "discard_new_per_subject", "subjects", "subject_transform", "mirror", "sources",
		"no_ack", "republish", "sealed", "deny_delete", "allow_msg_counter",
		"ack_policy", "deliver_policy", "deliver_subject", "filter_subject", "filter_subjects", "headers_only", "max_deliver", "backoff",
		"max_batch", "max_expires", "inactive_threshold", "opt_start_seq", "opt_start_time", "priority_groups", "priority_policy"}
	sizes = []string{"max_msgs_per_subject", "max_bytes", "max_age", "ack_wait"}
	needs = []string{"allow_direct"} // edges have no right to read the bucket otherwise
	// fixed are those that stay as they were made; lasting those that stay once they are set.
	fixed   = []string{"storage", "mirror", "persist_mode", "allow_msg_counter", "deliver_policy", "deliver_subject", "ack_policy", "replay_policy", "opt_start_seq", "opt_start_time"}
	lasting = []string{"sealed", "deny_delete", "deny_purge", "allow_msg_ttl", "allow_msg_schedules"}
	times   = []string{"max_age", "duplicate_window", "subject_delete_marker_ttl", "ack_wait"}
)

// differences are the settings of a stream, or of a consumer, that are not as wanted: what the
// server fills in where nothing is said is none.
func differences(want, is any) (out []Difference) {
	wants, has := fields(want), fields(is)
	names := maps.Clone(wants)
	maps.Copy(names, has)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w, i := wants[name], has[name]
		if slices.Contains(others, name) || none(w) && none(i) || reflect.DeepEqual(w, i) {
			continue
		}
		d := Difference{Setting: name, Is: text(name, i), Want: text(name, w)}
		d.fixed = slices.Contains(fixed, name) || slices.Contains(lasting, name) && none(w) ||
			name == "retention" && (w == "workqueue" || i == "workqueue")
		d.stands = !slices.Contains(harms, name) &&
			!(slices.Contains(sizes, name) && none(w) != none(i)) &&
			!(slices.Contains(needs, name) && none(i))
		out = append(out, d)
	}
	return out
}

// fields are a configuration's, as JetStream's API has them.
func fields(of any) (out map[string]any) {
	b, err := json.Marshal(of)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // it is the client's, and goes to the server so
	}
	return out
}

// none says that a value is what a setting has that is not set.
func none(v any) bool {
	switch v := v.(type) {
	case float64:
		return v == 0 || v == -1
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return v == nil || v == false || v == ""
}

func text(name string, v any) string {
	switch n, is := v.(float64); {
	case none(v):
		return "none"
	case is && slices.Contains(times, name):
		return time.Duration(n).String()
	case is:
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	if s, is := v.(string); is {
		return s
	}
	b, _ := json.Marshal(v) // which it came from
	return string(b)
}
