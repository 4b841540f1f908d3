package demo

import (
	"fmt"
	"slices"
	"testing"
)

func TestClientsHaveAHome(t *testing.T) {
	r := newRouter(3)
	counts := make([]int, 3)
	const n = 30_000
	for i := range n {
		counts[r.home(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))]++
	}
	for i, want := range []float64{0.406, 0.324, 0.270} { // 1, 1/1.25, 1/1.5 of their sum
		if got := float64(counts[i]) / n; got < want-0.02 || got > want+0.02 {
			t.Errorf("region %d has %.3f of the clients, want about %.3f", i, got, want)
		}
	}
	// The same in every process and version: these were computed once.
	for client, want := range map[string]int{"83.149.9.216": 2, "66.249.73.135": 1, "46.105.14.53": 2, "2001:db8::1": 1} {
		if got := r.home(client); got != want {
			t.Errorf("home(%s) = %d, want %d", client, got, want)
		}
	}
	if got := newRouter(1).home("x"); got != 0 {
		t.Errorf("of one region: home = %d", got)
	}
}

func TestSomeRequestsRoam(t *testing.T) {
	tr := newTraffic(newGenerated(1), make([]*region, 3), 1)
	const client, n = "83.149.9.216", 20_000
	counts := make([]int, 3)
	for range n {
		counts[tr.regionOf(client)]++
	}
	home := tr.router.home(client)
	for i, c := range counts {
		want := roaming / 2
		if i == home {
			want = 1 - roaming
		}
		if got := float64(c) / n; got < want-0.01 || got > want+0.01 {
			t.Errorf("region %d gets %.3f of a client's requests, want about %.3f", i, got, want)
		}
	}
	alone := newTraffic(newGenerated(1), make([]*region, 1), 1)
	for range 100 {
		if alone.regionOf(client) != 0 {
			t.Fatal("roamed out of the only region")
		}
	}
}

func TestGeneratedTrafficHasTheShapeOfTheLog(t *testing.T) {
	g, again := newGenerated(1), newGenerated(1)
	const n = 50_000
	byClient, byMethod, byPath := map[string]int{}, map[string]int{}, map[string]int{}
	for range n {
		r := g.Next()
		if r != again.Next() {
			t.Fatal("the same seed makes different traffic")
		}
		byClient[r.Client]++
		byMethod[r.Method]++
		byPath[r.Path]++
	}
	most := 0
	for _, c := range byClient {
		most = max(most, c)
	}
	if top := float64(most) / n; top < 0.03 || top > 0.09 {
		t.Errorf("the busiest client asks for %.3f of all, want about 0.05", top)
	}
	if len(byClient) < 1000 || len(byClient) > clients {
		t.Errorf("%d clients, want 1,000 to %d", len(byClient), clients)
	}
	if got := float64(byMethod["GET"]) / n; got < 0.99 {
		t.Errorf("GET is %.3f of all, want 0.995", got)
	}
	for _, list := range [][]weighted{paths, methods} {
		sum := 0
		for _, w := range list {
			sum += w.part
		}
		if sum != 10_000 {
			t.Errorf("%v sums up to %d, want 10,000", list, sum)
		}
	}
	if !slices.ContainsFunc(paths, func(w weighted) bool { return byPath[w.text] == 0 }) {
		return
	}
	t.Errorf("some path is never asked for: %v", byPath)
}
