package configs

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spillgate/spillgate/edge/limit"
)

// envoyVariables are the environment variables by which the reference decides otherwise
// than its files say, and what to do in their place.
var envoyVariables = []struct{ name, without, hint string }{
	{"NEAR_LIMIT_RATIO", "0.8", "near_limit, in rules of our own"},
	{"LOCAL_CACHE_SIZE_IN_BYTES", "0", "edges decide in memory in any case"},
	{stopVariable, "", "true or false; in rules of our own: defaults: {descriptors: all_or_nothing}"},
	{"SHADOW_MODE", "false", "mode: shadow, in the defaults of rules of our own, or shadow_mode in each descriptor"},
	{"QUOTA_MODE", "false", "quota_mode in each descriptor"},
	{"LIMIT_RESPONSE_HEADERS_ENABLED", "false", "on_limit: {headers: [ietf-06]}, in rules of our own: the same three headers"},
	{"LIMIT_LIMIT_HEADER", "RateLimit-Limit", "on_limit: {headers: [x-ratelimit]}, or another profile, in rules of our own"},
	{"LIMIT_REMAINING_HEADER", "RateLimit-Remaining", "on_limit: {headers: [x-ratelimit]}, or another profile, in rules of our own"},
	{"LIMIT_RESET_HEADER", "RateLimit-Reset", "on_limit: {headers: [github]}, or another profile, in rules of our own"},
	{"MERGE_DOMAIN_CONFIG", "false", "one file a domain"},
	{"RESPONSE_DYNAMIC_METADATA", "false", "metadata of descriptors, and of denials what denied, is told in any case"},
}

// stopVariable is the one of them that is taken over: where one descriptor of a call is over
// its limit the others are not counted.
const stopVariable = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT"

// envoyDefaults are what the environment says of all limits.
func envoyDefaults() (d limit.Defaults) {
	if on, err := strconv.ParseBool(os.Getenv(stopVariable)); err == nil && on {
		d.Descriptors = limit.ChargeAllOrNothing.String()
	}
	return d
}

// EnvoyVariables warns of variables of an environment by which the reference does what
// neither its files say nor we do.
func EnvoyVariables(environ []string) (warnings []Mistake) {
	for _, v := range envoyVariables {
		for _, kv := range environ {
			name, value, _ := strings.Cut(kv, "=")
			if _, err := strconv.ParseBool(value); name == stopVariable && err == nil {
				continue
			}
			if name == v.name && value != "" && !strings.EqualFold(value, v.without) {
				warnings = append(warnings, Mistake{
					File: "environment " + name, Code: "W257", Hint: v.hint,
					Detail: fmt.Sprintf("%q is not taken over", clip(value)),
				})
			}
		}
	}
	return warnings
}
