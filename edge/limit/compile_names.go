package limit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// nearNames warns of names that are almost those of what all requests have: the
// attributes are others then, which nobody may ever send. Who means them says so
// under keys, where from is the name itself.
func (c *compiler) nearNames() {
	from := map[string]string{} // where they stand
	for _, key := range slices.Sorted(maps.Keys(c.doc.Keys)) {
		for i, name := range c.doc.Keys[key].From {
			if name != key && from[name] == "" {
				from[name] = fmt.Sprintf("keys.%s.from[%d]", key, i)
			}
		}
	}
	for _, places := range []map[string]string{c.used, from} {
		for _, name := range slices.Sorted(maps.Keys(places)) {
			if h := canonicalAttribute(name); h == headerPrefix+"Transfer-Encoding" || h == headerPrefix+"Trailer" {
				c.warn(places[name], "W229", "leave it out", "no request has %q: it is gone when its header was read", name)
				continue
			}
			meant := nearBuiltIn(name)
			if meant == "" || len(c.doc.Keys[name].From) > 0 {
				continue
			}
			c.warn(places[name], "W229", fmt.Sprintf("did you mean %s? else say that it is meant: keys: {%s: {from: %s}}", meant, name, name),
				"no request has %q, unless its caller sends an attribute of that name", name)
		}
	}
}

// nearBuiltIn is the attribute of all requests that a name most likely meant; "" where
// none is near. client_id is no misspelt client_ip, nor is method2, a second one.
func nearBuiltIn(name string) string {
	if slices.Contains(fixedNames[:], name) || !attributeForm.MatchString(name) || strings.HasPrefix(name, headerPrefix) {
		return ""
	}
	word, edits := plain(name), 1
	if word == "clientid" || strings.Trim(word, "0123456789") != word {
		edits = 0
	}
	for _, known := range fixedNames {
		if slices.Contains(otherNames[known], word) || nearWord(word, plain(known), edits) {
			return known
		}
	}
	return ""
}

// nearResponse is what a name of the response most likely meant, of those that
// middleware sets; "" where none is near. Other names are the callers'.
func nearResponse(name string) string {
	word := plain(strings.TrimPrefix(name, responsePrefix))
	for _, known := range []string{responseStatus, responseCode} {
		short := strings.TrimPrefix(known, responsePrefix)
		if name == known {
			return ""
		}
		if slices.Contains(otherNames[known], word) || nearWord(word, short, min(2, min(len(word), len(short))/3)) {
			return known
		}
	}
	return ""
}

// nearWord says whether a word is so many edits from one of ours at the most. Of short
// ones the first letter is seldom misspelt: cost is not host.
func nearWord(word, ours string, edits int) bool {
	return word != "" && (word[0] == ours[0] || len(ours) > 4) && withinEdits(word, ours, edits)
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
