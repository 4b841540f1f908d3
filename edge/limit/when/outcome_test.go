package when

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/spillgate/spillgate/edge/limit"
)

// foregone is "true", "false" or "" as Foregone says of an expression.
func foregone(t *testing.T, text string) string {
	t.Helper()
	names := map[string]int{"tier": 0, "user": 1, "path": 2, "client_ip": 3}
	c, err := Compile(text, func(name string) (limit.Attribute, bool) {
		_, known := names[name]
		return limit.Attribute{Known: known || name == "response.status", Number: name == "response.status", Least: 100, Most: 599}, true
	})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	holds, known := c.(limit.Foregone).Foregone()
	return map[[2]bool]string{{true, true}: "true", {false, true}: "false"}[[2]bool{holds, known}]
}

func TestForegone(t *testing.T) {
	for text, want := range map[string]string{
		`true`:                               "true",
		`not true`:                           "false",
		`1 < 2`:                              "true",
		`"gold" in ["tin", "gold"]`:          "true",
		`inCIDR("10.1.2.3", "10.0.0.0/8")`:   "true",
		`lower("GOLD") matches "^s"`:         "false",
		`int("x") == 1`:                      "false", // it always fails
		`not (int("x") == 1)`:                "false",
		`tier == "gold"`:                     "",
		`tier == "gold" or true`:             "true",
		`tier == "gold" and false`:           "false",
		`false and tier == "gold"`:           "false",
		`tier == "gold" and true`:            "",
		`int(tier) == 5 or true`:             "", // it may fail
		`int(tier) == 5 and false`:           "false",
		`response.status == 401 or 1 == 1`:   "true",
		`response.status == 401 and 1 == 2`:  "false",
		`has("org") ? 1 == 1 : "a" == "a"`:   "true",
		`has("org") ? 1 == 1 : "a" == "b"`:   "",
		`false ? tier == "x" : true`:         "true",
		`(tier == "x" and false) == (1 > 2)`: "true",
		`has("org") == false`:                "",
		`has("org") != (false and true)`:     "",
		`attr("org") == header("X-Org")`:     "",
		`inCIDR(client_ip, "10.0.0.0/8")`:    "",

		`response.status in []`:                                                   "false",
		`response.status not in []`:                                               "true",
		`attr("org") in []`:                                                       "false",
		`attr("org") startsWith ""`:                                               "true",
		`attr("org") endsWith header("X-Org")`:                                    "",
		`response.status > 600`:                                                   "false",
		`response.status < 0`:                                                     "false",
		`response.status < 100 or response.status >= 600`:                         "false",
		`response.status <= 100`:                                                  "",
		`response.status > 598`:                                                   "",
		`response.status != 600`:                                                  "true",
		`-1 < response.status`:                                                    "true",
		`response.status >= 100 and response.status <= 599`:                       "true",
		`response.status >= 400 or response.status < 400`:                         "true",
		`response.status >= 400 or response.status < 399`:                         "",
		`response.status >= 400 and response.status < 400`:                        "false",
		`response.status > 400 and response.status < 402`:                         "", // 401
		`response.status > 400 and response.status < 401`:                         "false",
		`response.status == 401 and response.status == 403`:                       "false",
		`response.status == 401 and not (response.status == 401)`:                 "false",
		`response.status == 401 and response.status in [401, 403]`:                "",
		`response.status in [401, 403] and response.status not in [403, 401]`:     "false",
		`response.status == 401 ? response.status == 403 : response.status < 100`: "false",
		`response.status == 200 ? true : true`:                                    "true",
		`response.status == 200 ? true : false`:                                   "",
		`response.status == response.status`:                                      "true",
		`response.status == int(user)`:                                            "",
		`response.status == int(user) and response.status > 600`:                  "false",
		`has("response.status")`:                                                  "true",
		`not has("response.status")`:                                              "", // of whom reports none
		`has("response.status") and response.status == 401`:                       "",
		`has("response.outcome")`:                                                 "",
		`int(user) > 5 and int(user) < 3`:                                         "false",
		`int(user) > 5 and int(tier) < 3`:                                         "",
		`int(user) > 5 or int(user) <= 5`:                                         "", // it may fail
		`not (int(user) > 5 or int(user) <= 5)`:                                   "false",
		`int(user) > 9223372036854775806 and int(user) > 9223372036854775807`:     "false",
	} {
		if got := foregone(t, text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// What is said to be the same of all requests is.
func TestForegoneIsTrueOfAll(t *testing.T) {
	settled := 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 8))
		text := generate(rng, "truth", 3)
		want := foregone(t, text)
		if want == "" {
			continue
		}
		ns, err := compile(text)
		if err != nil && strings.Contains(err.Error(), "E166") {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		settled++
		one := func(of ...string) string { return of[rng.IntN(len(of))] }
		for range 20 {
			attributes := map[string]string{
				"tier": one("", "gold", "u1"), "user": one("", "u1", "7"), "size": one("", "120", "x"),
				"path": one("/", "u1"), "client_ip": one("10.0.0.1", "11.0.0.1", ""),
			}
			if got := applies(t, ns, attributes); got != (want == "true") {
				t.Errorf("seed %d: %s of %v = %v, and it is always %s", seed, text, attributes, got, want)
			}
		}
	}
	if settled < 300 {
		t.Errorf("%d of 4000 conditions were settled: this test sees too little", settled)
	}
}
