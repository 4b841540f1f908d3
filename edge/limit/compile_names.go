package limit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// nearResponse is what a name of the response most likely meant, of those that
// middleware sets; "" where none is near. Other names are the callers'.
func nearResponse(name string) string {
	word := plain(strings.TrimPrefix(name, responsePrefix))
	for _, known := range []string{responseStatus, responseCode} {
		short := strings.TrimPrefix(known, responsePrefix)
		switch {
		case name == known:
			return ""
		case word == short || slices.Contains(otherNames[known], word) || short[0] == word[0] && withinEdits(word, short, min(2, min(len(word), len(short))/3)):
			return known
		}
	}
	return ""
}

// misspelt warns of names in count_when that are almost those of what all responses
// have, and says in what was wrong with it which those are.
func (c *compiler) misspelt(path string, names map[string]string, problems Problems) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		hint := fmt.Sprintf("did you mean %s?", names[name])
		c.warn(path, "W228", hint, "no response has %q, unless who reports it says so", name)
		for i := range problems {
			problems[i].Hint = hint + " else: " + problems[i].Hint
		}
	}
}

// otherNames are what attributes of ours are called elsewhere, in plain letters.
// remote_address is none of them: it is what Envoy sends.
var otherNames = map[string][]string{
	"method":       {"httpmethod", "requestmethod"},
	"path":         {"uri", "url", "requestpath", "requesturi", "urlpath"},
	"host":         {"hostname", "httphost"},
	"client_ip":    {"ip", "clientaddr", "clientaddress", "ipaddr", "ipaddress", "realip", "remoteaddr", "remoteip", "sourceip", "srcip"},
	responseStatus: {"httpcode", "httpstatus", "httpstatuscode", "statuscode"},
	responseCode:   {"grpccode", "grpcstatus"},
}

var betweenWords = strings.NewReplacer("_", "", "-", "", ".", "")

// plain is a name in lower case, without what is written between its words.
func plain(name string) string { return betweenWords.Replace(strings.ToLower(name)) }
