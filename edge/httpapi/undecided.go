package httpapi

import "net/http"

// UndecidedField tells why what passes was not decided about, where an answer's status
// cannot: an access log would take it for what was admitted.
const UndecidedField = "X-Spillgate-Undecided"

// Why nothing was decided, as a Remote says it too.
const (
	undecidedFault = "fault"    // a panic, or an edge that is not reached
	undecidedSetup = "setup"    // the settings name a namespace that has no rules
	undecidedRules = "no-rules" // none are loaded yet
)

func tellUndecided(w http.ResponseWriter, why string) { w.Header()[UndecidedField] = []string{why} }
