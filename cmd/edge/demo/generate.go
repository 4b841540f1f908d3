package demo

import (
	"fmt"
	"math/rand/v2"

	"github.com/spillgate/spillgate/cmd/edge/demo/accesslog"
)

// generated is traffic of the shape of a real site's log (10,000 requests of
// 1,753 clients to semicomplete.com, 2015): a few clients ask for much, most
// for little, and they come in bursts, a page with its images and styles.
type generated struct {
	rnd     *rand.Rand
	clients *rand.Zipf
	visits  [16]visit // under way at once
}

type visit struct {
	client string
	left   int
}

const (
	clients   = 1753
	zipfS     = 1.1 // with zipfV: 5.4, 4.2, 3.4 … % of requests to the busiest clients; the log has 4.8, 3.6, 3.6 …
	zipfV     = 4
	meanVisit = 6
)

// weighted is a choice with its part of 10,000 requests.
type weighted struct {
	text string
	part int
}

var paths = []weighted{
	{"/presentations/logstash-puppetconf-2012/images/slide.png", 2305}, {"/blog/geekery/xdotool.html", 1959},
	{"/images/web/2009/banner.png", 1243}, {"/favicon.ico", 807}, {"/projects/xdotool/", 603}, {"/", 576},
	{"/files/logstash/logstash-1.1.0.jar", 547}, {"/style2.css", 546}, {"/reset.css", 538},
	{"/articles/dynamic-dns-with-dhcp/", 307}, {"/robots.txt", 180}, {"/icons/openlogo-75.png", 95},
	{"/scripts/grok-py-test/configlib.py", 75}, {"/misc/nmh/replcomps", 72}, {"/wp-login.php", 147},
}

var methods = []weighted{{"GET", 9952}, {"HEAD", 42}, {"POST", 5}, {"OPTIONS", 1}}

// newGenerated makes the same traffic for the same seed.
func newGenerated(seed uint64) *generated {
	rnd := rand.New(rand.NewPCG(seed, seed))
	return &generated{rnd: rnd, clients: rand.NewZipf(rnd, zipfS, zipfV, clients-1)}
}

// next implements source.
func (g *generated) Next() accesslog.Request {
	v := &g.visits[g.rnd.IntN(len(g.visits))]
	if v.left == 0 {
		n := g.clients.Uint64()
		v.client = fmt.Sprintf("100.%d.%d.%d", 64+n%60, n*7%251, 1+n*13%253)
		v.left = 1 + int(g.rnd.ExpFloat64()*(meanVisit-1))
	}
	v.left--
	return accesslog.Request{Client: v.client, Method: g.choose(methods), Path: g.choose(paths), Agent: "Mozilla/5.0 (generated)"}
}

func (g *generated) choose(from []weighted) string {
	at := g.rnd.IntN(10_000)
	for _, w := range from {
		if at -= w.part; at < 0 {
			return w.text
		}
	}
	return from[0].text
}
