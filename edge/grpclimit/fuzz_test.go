package grpclimit_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/spillgate/spillgate/edge/grpclimit"
	"github.com/spillgate/spillgate/edge/httpapi"
	"github.com/spillgate/spillgate/edge/limit"
)

// said is where an address is told from, of which nothing else is known.
type said string

func (said) Network() string  { return "tcp" }
func (s said) String() string { return string(s) }

var _ net.Addr = said("")

// heard is the header of a call's answer.
type heard struct {
	grpc.ServerTransportStream
	header metadata.MD
}

func (h *heard) SetHeader(md metadata.MD) error {
	h.header = metadata.Join(h.header, md)
	return nil
}

// Whatever a call says of itself it is counted once, served or denied with a time to come again, and
// told nothing that no header may have; the limiter panics at none.
func FuzzUnary(f *testing.F) {
	for _, of := range [][5]string{
		{"/shop.Orders/Get", "shop:443", "192.0.2.1:5", "x-user-id", "u"},
		{"", "", "", "", ""},
		{"shop//../%2e;b?c#d", "[::1]:x", "127.0.0.1:80", "x-forwarded-for", "2001:db8::1, 10.0.0.1"},
		{"/a\xff", "A\xc4.:1", "@", "x-cost", "18446744073709551616"},
		{"/" + strings.Repeat("a/", 100), "\n", "fe80::1%eth0", "x-user-id-bin", "\x00\xff\r\n"},
	} {
		f.Add(of[0], of[1], of[2], of[3], of[4])
	}
	each := limit.RuleSpec{Name: "each", Group: "each", Key: []string{"client_ip", "path", "host", "header.X-User-Id"},
		Cost: limit.CostSpec{FromHeader: "X-Cost", Max: 3}, Rates: []limit.RateSpec{{Limit: 5, Per: time.Hour}}}
	all := limit.RuleSpec{Name: "all", Group: "all", Rates: []limit.RateSpec{{Limit: 2, Per: time.Hour}}}
	f.Fuzz(func(t *testing.T, method, authority, from, name, value string) {
		log := slog.New(slog.NewTextHandler(panics{t}, &slog.HandlerOptions{Level: slog.LevelError}))
		limited, err := grpclimit.New(node(t, each, all), "", grpclimit.Config{Config: httpapi.Config{Now: func() time.Time { return at }, RetryJitter: -1, Logger: log}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			head := &heard{}
			ctx := grpc.NewContextWithServerTransportStream(t.Context(), head)
			ctx = metadata.NewIncomingContext(ctx, metadata.MD{":authority": {authority}, strings.ToLower(name): {value, authority}})
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: said(from)})
			served := false
			_, err := limited.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) {
				served = true
				return nil, nil
			})
			if served != (err == nil) || served && n == 2 {
				t.Fatalf("call %d: served is %v, %v", n+1, served, err)
			}
			if st := status.Convert(err); err != nil {
				again := false
				for _, d := range st.Details() {
					_, is := d.(*errdetails.RetryInfo)
					again = again || is
				}
				if st.Code() != codes.ResourceExhausted || !again {
					t.Fatalf("call %d: %v, want that it may come again", n+1, err)
				}
			}
			for name, values := range head.header {
				for _, value := range values {
					if strings.ContainsFunc(name+value, func(r rune) bool { return r < ' ' || r > '~' }) {
						t.Fatalf("call %d is told %q: %q", n+1, name, value)
					}
				}
			}
		}
	})
}

// panics fails a test at what the limiter logs as an error.
type panics struct{ testing.TB }

func (p panics) Write(b []byte) (int, error) {
	p.Errorf("the limiter says %s", b)
	return len(b), nil
}
