// Sends numbered events with go-lumber: lumber ADDRESS FIRST COUNT WINDOW [async].
// A window that was not acknowledged is sent again over a new connection.
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	v2 "github.com/elastic/go-lumber/client/v2"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: lumber ADDRESS FIRST COUNT WINDOW [async]")
		os.Exit(2)
	}
	var numbers [3]int
	for i := range numbers {
		number, err := strconv.Atoi(os.Args[2+i])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		numbers[i] = number
	}
	first, count, window := numbers[0], numbers[1], numbers[2]
	var windows [][]interface{}
	for start := first; start < first+count; start += window {
		var events []interface{}
		for n := start; n < start+window && n < first+count; n++ {
			events = append(events, map[string]interface{}{"n": n})
		}
		windows = append(windows, events)
	}
	send := sendSync
	if len(os.Args) > 5 && os.Args[5] == "async" {
		send = sendAsync
	}
	repeated := 0
	for len(windows) > 0 {
		left := send(os.Args[1], windows)
		if len(left) == len(windows) {
			time.Sleep(20 * time.Millisecond)
		}
		if len(left) > 0 {
			repeated++
		}
		windows = left
	}
	fmt.Printf("%d events acknowledged, %d connections broke\n", count, repeated)
}

// Both give the windows that were not acknowledged.
func sendSync(address string, windows [][]interface{}) [][]interface{} {
	client, err := v2.SyncDial(address, v2.CompressionLevel(3), v2.Timeout(30*time.Second))
	if err != nil {
		return windows
	}
	defer client.Close()
	for i, events := range windows {
		sent, err := client.Send(events)
		if err != nil || sent != len(events) {
			return windows[i:]
		}
	}
	return nil
}

func sendAsync(address string, windows [][]interface{}) [][]interface{} {
	client, err := v2.AsyncDial(address, 3, v2.CompressionLevel(3), v2.Timeout(30*time.Second))
	if err != nil {
		return windows
	}
	var answered sync.WaitGroup
	var lock sync.Mutex
	var left [][]interface{}
	keep := func(events []interface{}) {
		lock.Lock()
		left = append(left, events)
		lock.Unlock()
	}
	for i, events := range windows {
		events := events
		answered.Add(1)
		// A send that fails may have called back already, and may call back later.
		var once sync.Once
		end := func(isAcknowledged bool) {
			once.Do(func() {
				if !isAcknowledged {
					keep(events)
				}
				answered.Done()
			})
		}
		err := client.Send(func(sequence uint32, err error) {
			end(err == nil && int(sequence) == len(events))
		}, events)
		if err != nil {
			end(false)
			for _, events := range windows[i+1:] {
				keep(events)
			}
			break
		}
	}
	answered.Wait()
	client.Close()
	return left
}
