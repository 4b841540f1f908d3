package deltasync

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of frame.proto, which says what they mean. All of version 1
// stand here; a test compares them with the file. Those below "not yet used"
// have no field in Go so far: readers skip them as they skip unknown ones, and
// their numbers must never go to anything else.
const (
	upVersion     protowire.Number = 1 // also of Down, Hot, Live and Snap
	upKind        protowire.Number = 2
	upRegion      protowire.Number = 3
	upPop         protowire.Number = 4
	upName        protowire.Number = 5
	upNode        protowire.Number = 6
	upIncarnation protowire.Number = 7
	upLane        protowire.Number = 8
	upLanes       protowire.Number = 9
	upSeq         protowire.Number = 10
	upSentAt      protowire.Number = 11
	upSections    protowire.Number = 12
	upFeatures    protowire.Number = 13
	upHeardEpoch  protowire.Number = 19
	upSecretCheck protowire.Number = 20
	upHears       protowire.Number = 21
	upSilent      protowire.Number = 22
	// Not yet used.
	upReceivedAt protowire.Number = 14
	upEchoSentAt protowire.Number = 15
	upEchoAge    protowire.Number = 16
	upEchoSeq    protowire.Number = 17
	upLiveEdges  protowire.Number = 18
)

const (
	shapeGeneration protowire.Number = 1
	shapeWidth      protowire.Number = 2
	shapeSlices     protowire.Number = 3
	shapeLimit      protowire.Number = 4
	shapeRegional   protowire.Number = 5
	shapeRefill     protowire.Number = 6
	shapeRefillPer  protowire.Number = 7
	shapeFloor      protowire.Number = 8
	shapeEager      protowire.Number = 9
)

const (
	cellsCounts  protowire.Number = 1
	cellsSlices  protowire.Number = 2
	cellsCharges protowire.Number = 3
	cellsRefunds protowire.Number = 4
)

const (
	sectionShape protowire.Number = 1
	sectionLife  protowire.Number = 2
	sectionBase  protowire.Number = 3
	sectionKeys  protowire.Number = 4
	sectionFlags protowire.Number = 5
	sectionCells protowire.Number = 6
	sectionUntil protowire.Number = 7

	sectionCarrySlices protowire.Number = 8
	sectionCarryLevels protowire.Number = 9
	sectionHeard       protowire.Number = 16

	sectionDemandFast   protowire.Number = 10
	sectionDemandMid    protowire.Number = 11
	sectionDemandSlow   protowire.Number = 12
	sectionDemandWindow protowire.Number = 13
	sectionDemandKept   protowire.Number = 17
	sectionDemandSince  protowire.Number = 18
	sectionKeptSpent    protowire.Number = 19
	// Not yet used.
	sectionAdmitted    protowire.Number = 14
	sectionAdmittedAge protowire.Number = 15
)

const (
	totalsBase   protowire.Number = 1
	totalsOthers protowire.Number = 2
	totalsPeers  protowire.Number = 3
	totalsOwn    protowire.Number = 5
	totalsUntil  protowire.Number = 14

	totalsCarrySlices protowire.Number = 15
	totalsCarryLevels protowire.Number = 16

	totalsOmega        protowire.Number = 8
	totalsDemandSum    protowire.Number = 10
	totalsDemandWindow protowire.Number = 11
	totalsUnseen       protowire.Number = 17
	totalsDemand       protowire.Number = 18
	totalsKept         protowire.Number = 19
	totalsDoubt        protowire.Number = 20
	totalsSpent        protowire.Number = 21
	// Not yet used.
	totalsSeen         protowire.Number = 4
	totalsOthersSums   protowire.Number = 6
	totalsPeersSums    protowire.Number = 7
	totalsWeight       protowire.Number = 9
	totalsAdmitted     protowire.Number = 12
	totalsLimitInForce protowire.Number = 13
)

const (
	downStatus      protowire.Number = 2
	downRegion      protowire.Number = 3
	downNode        protowire.Number = 4
	downSeq         protowire.Number = 5
	downEchoSentAt  protowire.Number = 6
	downReceivedAt  protowire.Number = 7
	downSentAt      protowire.Number = 8
	downStoreEpoch  protowire.Number = 9
	downPace        protowire.Number = 10
	downLiveEdges   protowire.Number = 11
	downLiveRegions protowire.Number = 12
	downTotals      protowire.Number = 13
	downRefused     protowire.Number = 17
	downStore       protowire.Number = 18
	downMistake     protowire.Number = 19
	downLanes       protowire.Number = 20
	downBetween     protowire.Number = 21
	downRegions     protowire.Number = 22
	downHears       protowire.Number = 23
	downNamed       protowire.Number = 24
	// Not yet used.
	downFeatures    protowire.Number = 14
	downEchoAge     protowire.Number = 15
	downEpochs      protowire.Number = 16
	storeEpochTag   protowire.Number = 1
	storeEpochEpoch protowire.Number = 2
)

const (
	hotRegion      protowire.Number = 2
	hotLane        protowire.Number = 3
	hotSentAt      protowire.Number = 4
	hotLiveRegions protowire.Number = 5
	hotSections    protowire.Number = 6
	hotNext        protowire.Number = 14
	// Not yet used.
	hotLanes         protowire.Number = 7
	hotSeq           protowire.Number = 8
	hotLiveEdges     protowire.Number = 9
	hotTaken         protowire.Number = 10
	hotFeatures      protowire.Number = 11
	hotStoreEpoch    protowire.Number = 12
	hotPace          protowire.Number = 13
	takenNode        protowire.Number = 1
	takenIncarnation protowire.Number = 2
	takenSeq         protowire.Number = 3
)

const (
	hotSectionShape  protowire.Number = 1
	hotSectionKeys   protowire.Number = 2
	hotSectionTotals protowire.Number = 3
)

const (
	liveRegion      protowire.Number = 2
	liveName        protowire.Number = 3
	liveIncarnation protowire.Number = 4
	liveLanes       protowire.Number = 5
	liveSentAt      protowire.Number = 6
	liveLeaving     protowire.Number = 7
	liveLiveEdges   protowire.Number = 8
	liveLiveRegions protowire.Number = 9
	liveEvenEdges   protowire.Number = 10
)

const (
	snapRegion protowire.Number = 2
	snapLane   protowire.Number = 3
	snapLanes  protowire.Number = 4
	snapFrom   protowire.Number = 5
)

const (
	claimsRegion  protowire.Number = 2
	claimsLane    protowire.Number = 3
	claimsLanes   protowire.Number = 4
	claimsFrom    protowire.Number = 5
	claimsPop     protowire.Number = 6
	claimsName    protowire.Number = 7
	claimsSentAt  protowire.Number = 8
	claimsClaims  protowire.Number = 9
	claimKey      protowire.Number = 1
	claimHolder   protowire.Number = 2
	claimLimit    protowire.Number = 3
	claimLasts    protowire.Number = 4
	claimGranted  protowire.Number = 5
	claimReturned protowire.Number = 6
	claimWant     protowire.Number = 7
	claimRegional protowire.Number = 8
	claimBound    protowire.Number = 9
	claimEnds     protowire.Number = 10
	endCost       protowire.Number = 1
	endIn         protowire.Number = 2
)

const (
	grantsRegion protowire.Number = 2
	grantsLane   protowire.Number = 3
	grantsStatus protowire.Number = 4
	grantsEcho   protowire.Number = 5
	grantsLease  protowire.Number = 6
	grantsLog    protowire.Number = 7
	grantsGrants protowire.Number = 8
	grantKey     protowire.Number = 1
	grantHolder  protowire.Number = 2
	grantGranted protowire.Number = 3
	grantTarget  protowire.Number = 4
	grantEcho    protowire.Number = 5
	grantFlags   protowire.Number = 6
	grantHome    protowire.Number = 7
)
