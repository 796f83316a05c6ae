// Acknowledges events with go-lumber's server and drops them: server ADDRESS [bytes].
// Each event becomes a map, as go-lumber does it by default (encoding/json); with "bytes" its document is kept as it came.
package main

import (
	"fmt"
	"os"

	v2 "github.com/elastic/go-lumber/server/v2"
)

func keepBytes(document []byte, event interface{}) error {
	// The server uses the buffer of the document again.
	*event.(*interface{}) = append([]byte(nil), document...)
	return nil
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: server ADDRESS [bytes]")
		os.Exit(2)
	}
	var options []v2.Option
	if len(os.Args) > 2 && os.Args[2] == "bytes" {
		options = append(options, v2.JSONDecoder(keepBytes))
	}
	server, err := v2.ListenAndServe(os.Args[1], options...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for batch := range server.ReceiveChan() {
		batch.ACK()
	}
}
