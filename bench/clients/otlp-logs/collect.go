package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/receiver/fluentforwardreceiver"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// taker writes each record to a file before its request is answered.
type taker struct {
	file     *os.File
	delay    time.Duration
	busy     int
	refuse   int
	lock     sync.Mutex
	requests int
}

// number is behind the last `#` of a message.
func number(message string) int {
	number, err := strconv.Atoi(message[strings.LastIndexByte(message, '#')+1:])
	check(err)
	return number
}

func (t *taker) take(_ context.Context, logs plog.Logs) error {
	if t.delay > 0 {
		time.Sleep(t.delay)
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	t.requests++
	if t.busy > 0 && t.requests%t.busy == 0 {
		// 503 and 429 by turns, where the protocol is HTTP.
		code := codes.Unavailable
		if t.requests/t.busy%2 == 0 {
			code = codes.ResourceExhausted
		}
		state, err := status.New(code, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Second)})
		check(err)
		fmt.Println("busy")
		return state.Err()
	}
	var lines strings.Builder
	for _, resource := range logs.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			for _, record := range scope.LogRecords().All() {
				message, attributes := record.Body().Str(), record.Attributes()
				// The receiver for Forward knows no field `message` as the body.
				if text, ok := attributes.Get("message"); ok {
					message = text.Str()
				}
				if t.refuse > 0 && number(message)%t.refuse == 0 {
					fmt.Println("refused")
					return status.Error(codes.InvalidArgument, "a record is not wanted")
				}
				id, ok := attributes.Get("id")
				if !ok {
					check(fmt.Errorf("a record without an id: %v", attributes.AsRaw()))
				}
				if uid, ok := attributes.Get("log.record.uid"); ok && uid.Str() != id.Str() {
					check(fmt.Errorf("the ids %s and %s differ", uid.Str(), id.Str()))
				}
				fmt.Fprintf(&lines, "%s\t%s\n", id.Str(), message)
			}
		}
	}
	// One write, which outlives this process.
	_, err := t.file.WriteString(lines.String())
	check(err)
	return nil
}

// collect is `collect [-delay MILLISECONDS] [-busy N] [-refuse N] FILE otlp HTTP_ADDRESS GRPC_ADDRESS | forward ADDRESS`.
func collect(arguments []string) {
	flags := flag.NewFlagSet("collect", flag.ExitOnError)
	delay := flags.Int("delay", 0, "milliseconds before each answer")
	busy := flags.Int("busy", 0, "every N-th request is answered with 503 or 429, after a second again")
	refuse := flags.Int("refuse", 0, "requests with an event whose number is a multiple are refused")
	check(flags.Parse(arguments))
	arguments = flags.Args()
	if len(arguments) < 3 {
		log.Fatal("see the comment at the start of main.go")
	}
	file, err := os.OpenFile(arguments[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	taker := &taker{file: file, delay: time.Duration(*delay) * time.Millisecond, busy: *busy, refuse: *refuse}
	logs, err := consumer.NewLogs(taker.take)
	check(err)
	var factory receiver.Factory
	var config component.Config
	if arguments[1] == "otlp" {
		factory = otlpreceiver.NewFactory()
		config = configured(factory.CreateDefaultConfig(), map[string]any{"protocols": map[string]any{
			"http": map[string]any{"endpoint": arguments[2]},
			"grpc": map[string]any{"endpoint": arguments[3]},
		}})
	} else {
		factory = fluentforwardreceiver.NewFactory()
		config = configured(factory.CreateDefaultConfig(), map[string]any{"endpoint": arguments[2]})
	}
	receiver, err := factory.CreateLogs(context.Background(), receivertest.NewNopSettings(factory.Type()), config, logs)
	check(err)
	check(receiver.Start(context.Background(), componenttest.NewNopHost()))
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	check(receiver.Shutdown(context.Background()))
}
