// Command retryablehttp has go-retryablehttp ask for each URL so many times in a row,
// and prints the statuses that it got, or what failed.
//
//	retryablehttp TIMES URL...
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"github.com/hashicorp/go-retryablehttp"
)

func main() {
	times, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	var wait sync.WaitGroup
	for _, url := range os.Args[2:] {
		wait.Go(func() {
			client := retryablehttp.NewClient()
			client.Logger = nil
			var got []int
			for range times {
				resp, err := client.Get(url)
				if err != nil {
					fmt.Println(url, got, err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				got = append(got, resp.StatusCode)
			}
			fmt.Println(url, got)
		})
	}
	wait.Wait()
}
