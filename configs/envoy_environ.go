package configs

import (
	"fmt"
	"strings"
)

// envoyVariables are the environment variables by which the reference decides otherwise
// than its files say, and what to do in their place.
var envoyVariables = []struct{ name, without, hint string }{
	{"NEAR_LIMIT_RATIO", "0.8", "near_limit, in rules of our own"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "0", "edges decide in memory in any case"},
	{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "false", "charge: all_or_nothing, in rules of our own; rules.format: envoy counts what is denied"},
	{"SHADOW_MODE", "false", "mode: shadow, in the defaults of rules of our own, or shadow_mode in each descriptor"},
	{"QUOTA_MODE", "false", "quota_mode in each descriptor"},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", "false", "on_limit: {headers: [ietf-06]}, in rules of our own: the same three headers"},
	{"LIMIT_LIMIT_HEADER", "RateLimit-Limit", "on_limit: {headers: [x-ratelimit]}, or another profile, in rules of our own"},
	{"LIMIT_REMAINING_HEADER", "RateLimit-Remaining", "on_limit: {headers: [x-ratelimit]}, or another profile, in rules of our own"},
	{"LIMIT_RESET_HEADER", "RateLimit-Reset", "on_limit: {headers: [github]}, or another profile, in rules of our own"},
	{"MERGE_DOMAIN_CONFIG", "false", "one file a domain"},
	{"RESPONSE_DYNAMIC_METADATA", "false", "metadata of descriptors, and of denials what denied, is told in any case"},
}

// EnvoyVariables warns of variables of an environment by which the reference does what
// neither its files say nor we do.
func EnvoyVariables(environ []string) (warnings []Mistake) {
	for _, v := range envoyVariables {
		for _, kv := range environ {
			if name, value, _ := strings.Cut(kv, "="); name == v.name && value != "" && !strings.EqualFold(value, v.without) {
				warnings = append(warnings, Mistake{
					File: "environment " + name, Code: "W257", Hint: v.hint,
					Detail: fmt.Sprintf("%q is not taken over", clip(value)),
				})
			}
		}
	}
	return warnings
}
