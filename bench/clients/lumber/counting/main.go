// Acknowledges events with go-lumber's server, after it has written them to a file: counting ADDRESS FILE [MILLISECONDS].
// A line has the id of an event, a tab and its message. Each batch is acknowledged so many milliseconds after it came.
package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v2 "github.com/elastic/go-lumber/server/v2"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func text(event map[string]interface{}, name string) string {
	text, ok := event[name].(string)
	if !ok {
		check(fmt.Errorf("%s is no text in %v", name, event))
	}
	return text
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: counting ADDRESS FILE [MILLISECONDS]")
		os.Exit(2)
	}
	delay := 0
	if len(os.Args) > 3 {
		number, err := strconv.Atoi(os.Args[3])
		check(err)
		delay = number
	}
	file, err := os.OpenFile(os.Args[2], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	server, err := v2.ListenAndServe(os.Args[1])
	check(err)
	for batch := range server.ReceiveChan() {
		var lines strings.Builder
		for _, any := range batch.Events {
			event, ok := any.(map[string]interface{})
			if !ok {
				check(fmt.Errorf("an event is no object: %v", any))
			}
			metadata, _ := event["@metadata"].(map[string]interface{})
			fmt.Fprintf(&lines, "%s\t%s\n", text(metadata, "_id"), text(event, "message"))
		}
		// One write, which outlives this process.
		_, err := file.WriteString(lines.String())
		check(err)
		if delay == 0 {
			batch.ACK()
		} else {
			time.AfterFunc(time.Duration(delay)*time.Millisecond, batch.ACK)
		}
	}
}
