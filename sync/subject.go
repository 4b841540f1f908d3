package deltasync

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxToken is the longest name that stands in a subject, in bytes.
const MaxToken = 32

// Subjects begin with the name of the system and of the protocol's major
// version: daemons that share a NATS cluster with an incompatible one never
// hear it.
const (
	upPrefix    = "sg.v1.up."
	hotPrefix   = "sg.v1.hot."
	livePrefix  = "sg.v1.live."
	snapPrefix  = "sg.v1.snap."
	auditPrefix = "sg.v1.audit."
	claimPrefix = "sg.v1.claim."
	grantPrefix = "sg.v1.grant."
	tellPrefix  = "sg.v1.tell."
	toldPrefix  = "sg.v1.told."
	queuePrefix = "agg-"
	edgeMark    = "e"
	regionMark  = "r"
)

// Sender is who sent an Up and to whom, as its subject says. The bus can be
// told who may publish where; nothing binds what a frame says of itself.
type Sender struct {
	Region string // that the frame is addressed to
	Lane   int
	Kind   Kind
	Pop    string // of an edge
	Name   string // of an edge
	From   string // region that the sender belongs to
}

// EdgeSubject is where an edge sends frames of a lane.
func EdgeSubject(region string, lane int, pop, edge string) string {
	return upPrefix + region + "." + strconv.Itoa(lane) + "." + edgeMark + "." + pop + "." + edge
}

// RegionSubject is where the aggregators of region from send frames of a lane
// to region to.
func RegionSubject(to string, lane int, from string) string {
	return upPrefix + to + "." + strconv.Itoa(lane) + "." + regionMark + "." + from
}

// HotSubject is where the owner of a lane pushes to the edges of its region.
func HotSubject(region string, lane int) string {
	return hotPrefix + region + "." + strconv.Itoa(lane)
}

// UpSubjects is all frames addressed to a region.
func UpSubjects(region string) string { return upPrefix + region + ".>" }

// LaneSubjects is what the owner of a lane serves: all frames of the lane that
// are addressed to its region.
func LaneSubjects(region string, lane int) string {
	return upPrefix + region + "." + strconv.Itoa(lane) + ".>"
}

// LiveSubject is where a region's aggregators tell each other that they live,
// AskSubject where one that starts asks whether any other does.
func LiveSubject(region string) string { return livePrefix + region }

// AskSubject is described with LiveSubject.
func AskSubject(region string) string { return livePrefix + region + ".ask" }

// SnapSubject is where an edge that starts asks the owner of a lane for the keys
// near their limit.
func SnapSubject(region string, lane int) string {
	return snapPrefix + region + "." + strconv.Itoa(lane)
}

// AuditSubject is where another region asks the owner of a lane what his region has
// counted for some keys, to compare that with what it believes.
func AuditSubject(region string, lane int) string {
	return auditPrefix + region + "." + strconv.Itoa(lane)
}

// AuditedRegion is whom an audit asks, by its subject; "": it is none.
func AuditedRegion(subject string) string {
	rest, ok := strings.CutPrefix(subject, auditPrefix)
	if !ok {
		return ""
	}
	region, _, _ := strings.Cut(rest, ".")
	return region
}

// HotSubjects is what the edges of a region subscribe to: pushes of all lanes.
func HotSubjects(region string) string { return hotPrefix + region + ".*" }

// ClaimSubject is where an edge asks the authority of a lane, in a region that need not
// be its own, for rights.
func ClaimSubject(home string, lane int, region, pop, edge string) string {
	return claimPrefix + home + "." + strconv.Itoa(lane) + "." + edgeMark + "." + region + "." + pop + "." + edge
}

// ClaimSubjects is what the authority of a lane serves.
func ClaimSubjects(home string, lane int) string {
	return claimPrefix + home + "." + strconv.Itoa(lane) + ".>"
}

// GrantSubject is where the authority of a lane tells the edges of a region what they
// were granted, or should return.
func GrantSubject(region string, lane int) string {
	return grantPrefix + region + "." + strconv.Itoa(lane)
}

// GrantSubjects is what the edges of a region subscribe to: grants of all lanes.
func GrantSubjects(region string) string { return grantPrefix + region + ".*" }

// GrantedRegion is whose edges a grant is for, by its subject; "": it is none.
func GrantedRegion(subject string) string {
	rest, ok := strings.CutPrefix(subject, grantPrefix)
	if !ok {
		return ""
	}
	region, _, _ := strings.Cut(rest, ".")
	return region
}

// TellSubject is where an edge tells all aggregators of its region what it decided.
func TellSubject(region, pop, edge string) string {
	return tellPrefix + region + "." + edgeMark + "." + pop + "." + edge
}

// TellSubjects is what the edges of a region tell.
func TellSubjects(region string) string { return tellPrefix + region + ".>" }

// ToldSubject is where the aggregators of a region say what its edges told them.
func ToldSubject(region string) string { return toldPrefix + region }

// ParseTellSubject reads the subject of a Tell.
func ParseTellSubject(subject string) (Sender, error) {
	rest, ok := strings.CutPrefix(subject, tellPrefix)
	t := strings.SplitN(rest, ".", 5)
	if !ok || len(t) != 4 || t[1] != edgeMark {
		return Sender{}, fmt.Errorf("subject %.200q: want %s<region>.e.<pop>.<edge>", subject, tellPrefix)
	}
	for _, i := range []int{0, 2, 3} {
		if err := ValidToken(t[i]); err != nil {
			return Sender{}, fmt.Errorf("subject %.200q: %w", subject, err)
		}
	}
	return Sender{Region: t[0], Kind: KindEdge, Pop: t[2], Name: t[3], From: t[0]}, nil
}

// ParseClaim reads the subject of Claims: to whom, and from whom, as Sender says.
func ParseClaim(subject string) (Sender, error) {
	const form = "want " + claimPrefix + "<region>.<lane>.e.<region>.<pop>.<edge>"
	rest, ok := strings.CutPrefix(subject, claimPrefix)
	t := strings.SplitN(rest, ".", 7)
	if !ok || len(t) != 6 || t[2] != edgeMark {
		return Sender{}, fmt.Errorf("subject %.200q: "+form, subject)
	}
	for _, i := range []int{0, 3, 4, 5} {
		if err := ValidToken(t[i]); err != nil {
			return Sender{}, fmt.Errorf("subject %.200q: %w", subject, err)
		}
	}
	lane, err := strconv.Atoi(t[1])
	if err != nil || lane < 0 || lane >= MaxLanes || strconv.Itoa(lane) != t[1] {
		return Sender{}, fmt.Errorf("subject %.200q: lane %.20q, want 0 to %d", subject, t[1], MaxLanes-1)
	}
	return Sender{Region: t[0], Lane: lane, Kind: KindEdge, From: t[3], Pop: t[4], Name: t[5]}, nil
}

// Queue is the queue group of a region's aggregators. It names the region,
// because a queue name that regions share would hand each message to one of
// them only.
func Queue(region string) string { return queuePrefix + region }

// ParseUp reads the subject of an Up.
func ParseUp(subject string) (Sender, error) {
	rest, ok := strings.CutPrefix(subject, upPrefix)
	if !ok {
		return Sender{}, fmt.Errorf("subject %.200q: want it to begin with %s", subject, upPrefix)
	}
	t := strings.SplitN(rest, ".", 6)
	var s Sender
	switch {
	case len(t) == 5 && t[2] == edgeMark:
		s = Sender{Region: t[0], Kind: KindEdge, Pop: t[3], Name: t[4], From: t[0]}
	case len(t) == 4 && t[2] == regionMark:
		s = Sender{Region: t[0], Kind: KindRegion, From: t[3]}
	default:
		return Sender{}, fmt.Errorf("subject %.200q: want %s<region>.<lane>.e.<pop>.<edge> or .r.<region>", subject, upPrefix)
	}
	for i, token := range t {
		if i == 1 || i == 2 {
			continue
		}
		if err := ValidToken(token); err != nil {
			return Sender{}, fmt.Errorf("subject %.200q: %w", subject, err)
		}
	}
	lane, err := strconv.Atoi(t[1])
	if err != nil || lane < 0 || lane >= MaxLanes || strconv.Itoa(lane) != t[1] {
		return Sender{}, fmt.Errorf("subject %.200q: lane %.20q, want 0 to %d", subject, t[1], MaxLanes-1)
	}
	s.Lane = lane
	return s, nil
}

// ValidToken says what keeps s from being the name of a region, PoP, edge or
// aggregator: they are parts of subjects.
func ValidToken(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("name is empty: want 1 to %d of a-z, 0-9 and -", MaxToken)
	case len(s) > MaxToken:
		return fmt.Errorf("name %.32q… has %d bytes, want at most %d", s, len(s), MaxToken)
	case s[0] == '-':
		return fmt.Errorf("name %q begins with -: want a letter or a digit", s)
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("name %q: %q is not allowed, want a-z, 0-9 and -", s, c)
		}
	}
	return nil
}
