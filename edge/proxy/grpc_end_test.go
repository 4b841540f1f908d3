package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// doing is an upstream of gRPC that does with each call what its client says, word by word.
func doing(t *testing.T) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) (err error) {
		md, _ := metadata.FromIncomingContext(stream.Context())
		for _, word := range md["do"] {
			switch word {
			case "header":
				err = errors.Join(err, stream.SendHeader(metadata.Pairs("a", "b")))
			case "message":
				err = errors.Join(err, stream.SendMsg(wrapperspb.String("x")))
			case "trailer":
				stream.SetTrailer(metadata.Pairs("c", "d"))
			case "fail":
				return status.Error(codes.Unauthenticated, "wrong password")
			}
		}
		return err
	}))
	go func() { _ = server.Serve(ln) }() // Stop ends it
	t.Cleanup(server.Stop)
	return "h2c://" + ln.Addr().String()
}

// do has the upstream do so, and tells how the call ended.
func do(conn *grpc.ClientConn, words ...string) string {
	ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(context.Background(), metadata.MD{"do": words}), patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/x.Y/Z")
	if err != nil {
		return err.Error()
	}
	err = errors.Join(stream.SendMsg(wrapperspb.String("x")), stream.CloseSend())
	messages := -1
	for ; err == nil; messages++ {
		err = stream.RecvMsg(new(wrapperspb.StringValue))
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimSuffix(fmt.Sprintln(messages, status.Code(err), status.Convert(err).Message(), stream.Trailer()["c"]), "\n")
}

// A call ends as the upstream ends it, be its status in the header, which is the end then
// ("Trailers-Only"), or after it.
func TestCallsEndAsTheUpstreamEndsThem(t *testing.T) {
	s := (&site{t: t}).before(doing(t), options{}, hourly(1e9))
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const failed = "Unauthenticated wrong password"
	for words, want := range map[string]string{
		"fail":                        "0 " + failed + " []",
		"trailer fail":                "0 " + failed + " [d]",
		"header fail":                 "0 " + failed + " []",
		"message fail":                "1 " + failed + " []",
		"header message trailer fail": "1 " + failed + " [d]",
		"":                            "0 OK  []",
		"trailer":                     "0 OK  [d]",
		"message trailer":             "1 OK  [d]",
	} {
		t.Run(words, func(t *testing.T) {
			ends := map[string]int{}
			for range 400 { // one by one: under load fewer are met by a flush too early
				ends[do(conn, strings.Fields(words)...)]++
			}
			if !maps.Equal(ends, map[string]int{want: 400}) {
				t.Errorf("the calls ended so: %v; want all %q", ends, want)
			}
		})
	}
}

// Rules that count responses see how a call ended, by the words that edge/grpclimit has for it, wherever the
// upstream says so, and where the edge ends it.
func TestCallsAreCountedByTheirCode(t *testing.T) {
	upstream := doing(t)
	for name, c := range map[string]struct {
		when, upstream string
		words          string
		counted        bool
	}{
		"by code":              {`response.code == "UNAUTHENTICATED"`, upstream, "fail", true},
		"by status":            {`response.status == 401`, upstream, "fail", true},
		"after a header":       {`response.code == "UNAUTHENTICATED" and response.status == 401`, upstream, "header fail", true},
		"after a message":      {`response.code == "UNAUTHENTICATED"`, upstream, "message trailer fail", true},
		"by another code":      {`response.code == "NOT_FOUND"`, upstream, "fail", false},
		"by HTTP's own status": {`response.status == 200`, upstream, "fail", false},
		"served":               {`response.code == "UNAUTHENTICATED"`, upstream, "message", false},
		"those served":         {`response.code == "OK" and response.status == 200`, upstream, "message", true},
		"with nothing":         {`response.code == "OK"`, upstream, "", true},
		"of no upstream":       {`response.code == "UNAVAILABLE" and response.status == 502`, "h2c://127.0.0.1:1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			rule := hourly(2)
			rule.CountWhen = c.when
			s := (&site{t: t}).before(c.upstream, options{}, rule)
			conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ends := [3]string{}
			for i := range ends {
				ends[i] = do(conn, strings.Fields(c.words)...)
			}
			if ends[0] != ends[1] || strings.Contains(ends[2], "ResourceExhausted") != c.counted {
				t.Errorf("count_when: %s, of calls that do %q: they ended so: %q; want them counted %v", c.when, c.words, ends, c.counted)
			}
		})
	}
}

// One whose answer breaks off has ended, too, be that the upstream's doing or the client's.
func TestBrokenCallsAreCountedByTheirCode(t *testing.T) {
	for code, leaves := range map[string]bool{"INTERNAL": false, "CANCELLED": true} {
		rule := hourly(1)
		rule.CountWhen = fmt.Sprintf("response.code == %q", code)
		s := newSite(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			if leaves {
				<-r.Context().Done()
			}
			panic(http.ErrAbortHandler)
		}, options{}, rule)
		c := s.dial()
		c.write("POST /x.Y/Z HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc-web\r\nContent-Length: 0\r\n\r\n")
		if leaves {
			c.response()
			c.Close()
			s.result("left", 1)
		} else {
			s.result("broken", 1)
		}
		if got := s.call("/x.Y/Z", ""); got.header.Get("Grpc-Status") != "8" {
			t.Errorf("after a call that is to be %s: %+v, want it denied", code, got)
		}
	}
}

// A call that the upstream turns away, or that fails, is no sign of room either; a deadline is its client's own.
func TestCallsThatFailAreNoRoom(t *testing.T) {
	for code, used := range map[codes.Code]float64{
		codes.OK: 0.2, codes.NotFound: 0.2, codes.Unavailable: 4, codes.ResourceExhausted: 4, codes.Internal: -1, codes.DeadlineExceeded: -1,
	} {
		h := &heard{}
		x := &exchange{in: httptest.NewRequest("POST", "/x.Y/Z", nil)}
		x.in.Header.Set("Content-Type", "application/grpc")
		res := &http.Response{StatusCode: 200, Header: http.Header{"Grpc-Status": {strconv.Itoa(int(code))}}}
		signalTo(h, CapacityConfig{Latency: time.Second}).answered(time.Unix(1000, 0), x.statusOf(res), time.Second/5)
		if got := append(h.values, -1)[0]; got != used {
			t.Errorf("after a call that ended with %v %v is in use, want %v", code, got, used)
		}
	}
}
