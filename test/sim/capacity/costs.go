package capacity

// Costs are what single things cost. Each is measured; see Sources.
type Costs struct {
	// Of a frame with counts, in bytes: the head of a frame, what comes on top
	// for a section with its shape, for each key in it, and for each slice of a
	// key whose count is one byte long.
	UpHead, Section, Key, Cell float64
	// What a frame of an edge takes besides to say what it heard: of whom, in a
	// section where it heard of some keys, and each key.
	HeardHead, HeardColumn, Heard float64
	// What a frame of a region, and a reply to one, takes besides to say whom it hears.
	Hears float64
	// Of a reply: its head, each key, to which come its cells.
	DownHead, ReplyKey float64
	// Of a push: its head with a shape, each key, to which come its cells.
	PushHead, PushKey float64

	// Processor time of an aggregator, in seconds: a key of a frame, and each
	// slice of its reply.
	MergeKey, MergeReplyCell float64
	// Processor time of Redis, in seconds: a key that is written.
	RedisKey float64

	// Memory in bytes. Of Redis: a key's group of slices, each field of it, each
	// slice of a field. Of an aggregator: a key, each replica that counted it,
	// each slice of a replica. Of an edge: a key that nobody else counted, any
	// other key, each slice of that.
	RedisGroup, RedisField, RedisCell float64
	HeldKey, HeldReplica, HeldCell    float64
	EdgeSparse, EdgeWhole, EdgeCell   float64
	RedisBusy, AggregatorBusy         float64 // the part of a core that is planned with
	RedisReplicas                     float64 // how often Redis' memory is held
}

// Measured are the costs as they are now.
func Measured() Costs {
	return Costs{
		UpHead: 62, Section: 39, Key: 9.7, Cell: 2,
		HeardHead: 10, HeardColumn: 3, Heard: 1,
		Hears:    10,
		DownHead: 88, ReplyKey: 2.2,
		PushHead: 63, PushKey: 10,
		MergeKey: 1.5e-6, MergeReplyCell: 0.23e-6,
		RedisKey:   10.5e-6,
		RedisGroup: 250, RedisField: 23, RedisCell: 2.2,
		HeldKey: 400, HeldReplica: 120, HeldCell: 1.7,
		EdgeSparse: 90, EdgeWhole: 245, EdgeCell: 1.5,
		RedisBusy: 0.5, AggregatorBusy: 0.5,
		RedisReplicas: 2,
	}
}

// Source says where figures come from.
type Source struct {
	What, From string
}

// Sources are those of all costs.
var Sources = []Source{
	{"bytes of frames, replies and pushes", "go test -run Wire ./test/sim/capacity (encodes them with sync and compares)"},
	{"aggregator: 1.5 µs of processor a key + 0.23 µs a slice of its reply; 400 B a key + 120 B a replica + 1.7 B a slice", "go test -run xxx -bench Cost -benchtime 20x ./regional"},
	{"redis-server 7: 10.5 µs of its own processor (INFO cpu) a key written; 250 B a group + 23 B a field + 2.2 B a slice (INFO memory)", "go test -run xxx -bench Cost -benchtime 5x ./regional/redisstore"},
	{"edge: 90 B a sparse key; 365 B with 40 slices of its own and of others", "P7 in test/bench/RESULTS.md (go run ./test/bench)"},
	{"half a core of each Redis and aggregator is planned with, and a replica of each Redis", "research/substrate.md §11"},
}
