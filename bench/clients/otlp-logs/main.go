// The OpenTelemetry Collector's receiver and exporters for logs over OTLP, without the rest of the Collector.
//
//	otlplogs receive HTTP_ADDRESS GRPC_ADDRESS   counts records until SIGTERM; the JSON of the first on standard error
//	otlplogs send http|grpc ADDRESS COUNT [COMPRESSION]   sends numbered records, 1,000 a request, until all are accepted
//	otlplogs collect [-delay MILLISECONDS] [-busy N] [-refuse N] FILE otlp HTTP_ADDRESS GRPC_ADDRESS
//	otlplogs collect [...] FILE forward ADDRESS   writes the id and the message of each record to a file: see collect.go
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// configured gives a configuration with these settings.
func configured(config component.Config, settings map[string]any) component.Config {
	check(confmap.NewFromStringMap(settings).Unmarshal(config))
	return config
}

func receive(http, grpc string) {
	var mutex sync.Mutex
	records, resources, bytes := 0, 0, 0
	ids := map[string]bool{}
	count, err := consumer.NewLogs(func(_ context.Context, logs plog.Logs) error {
		mutex.Lock()
		defer mutex.Unlock()
		if records == 0 {
			first := plog.NewLogs()
			logs.ResourceLogs().At(0).CopyTo(first.ResourceLogs().AppendEmpty())
			all := first.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
			one := 0
			all.RemoveIf(func(plog.LogRecord) bool { one++; return one > 1 })
			text, err := (&plog.JSONMarshaler{}).MarshalLogs(first)
			check(err)
			fmt.Fprintf(os.Stderr, "%s\n", text)
		}
		records += logs.LogRecordCount()
		resources += logs.ResourceLogs().Len()
		bytes += (&plog.ProtoMarshaler{}).LogsSize(logs)
		for _, resource := range logs.ResourceLogs().All() {
			for _, scope := range resource.ScopeLogs().All() {
				for _, record := range scope.LogRecords().All() {
					id, _ := record.Attributes().Get("log.record.uid")
					ids[id.Str()] = true
				}
			}
		}
		return nil
	})
	check(err)
	factory := otlpreceiver.NewFactory()
	config := configured(factory.CreateDefaultConfig(), map[string]any{"protocols": map[string]any{
		"http": map[string]any{"endpoint": http},
		"grpc": map[string]any{"endpoint": grpc},
	}})
	receiver, err := factory.CreateLogs(context.Background(), receivertest.NewNopSettings(factory.Type()), config, count)
	check(err)
	check(receiver.Start(context.Background(), componenttest.NewNopHost()))
	fmt.Println("listening")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	check(receiver.Shutdown(context.Background()))
	fmt.Printf("%d records, %d ids, %d resources, %d bytes\n", records, len(ids), resources, bytes)
}

// request has records with these numbers.
func request(from, to int) plog.Logs {
	logs := plog.NewLogs()
	resource := logs.ResourceLogs().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "shop")
	resource.Resource().Attributes().PutStr("host.name", "web-1")
	scope := resource.ScopeLogs().AppendEmpty()
	scope.Scope().SetName("com.example.shop")
	scope.Scope().SetVersion("1.2.3")
	for number := from; number < to; number++ {
		record := scope.LogRecords().AppendEmpty()
		record.SetTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		record.SetSeverityNumber(plog.SeverityNumberInfo)
		record.SetSeverityText("INFO")
		record.Body().SetStr(fmt.Sprintf("order %d was placed by a customer, and paid with a card", number))
		record.Attributes().PutInt("number", int64(number))
		record.Attributes().PutStr("http.request.method", "POST")
		record.Attributes().PutStr("url.path", "/orders/new")
		record.Attributes().PutInt("http.response.status_code", 201)
		record.Attributes().PutDouble("duration", 12.75)
		record.SetTraceID(pcommon.TraceID{1, 2, 3, byte(number)})
		record.SetSpanID(pcommon.SpanID{4, 5, 6, byte(number)})
	}
	return logs
}

func send(protocol, address string, count int, compression string) {
	var factory exporter.Factory
	settings := map[string]any{"compression": compression, "sending_queue": map[string]any{"enabled": false},
		"retry_on_failure": map[string]any{"enabled": true, "initial_interval": "100ms", "max_elapsed_time": "60s"}}
	if protocol == "grpc" {
		factory = otlpexporter.NewFactory()
		settings["endpoint"] = address
		settings["tls"] = map[string]any{"insecure": true}
	} else {
		factory = otlphttpexporter.NewFactory()
		settings["endpoint"] = "http://" + address
		if protocol == "json" {
			settings["encoding"] = "json"
		}
	}
	config := configured(factory.CreateDefaultConfig(), settings)
	logs, err := factory.CreateLogs(context.Background(), exportertest.NewNopSettings(factory.Type()), config)
	check(err)
	check(logs.Start(context.Background(), componenttest.NewNopHost()))
	var group sync.WaitGroup
	slots := make(chan bool, 8)
	for from := 0; from < count; from += 1000 {
		group.Add(1)
		slots <- true
		go func() {
			defer group.Done()
			check(logs.ConsumeLogs(context.Background(), request(from, min(from+1000, count))))
			<-slots
		}()
	}
	group.Wait()
	check(logs.Shutdown(context.Background()))
	fmt.Printf("%d records accepted\n", count)
}

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) > 1 && arguments[0] == "collect":
		collect(arguments[1:])
	case len(arguments) == 3 && arguments[0] == "receive":
		receive(arguments[1], arguments[2])
	case len(arguments) >= 4 && arguments[0] == "send":
		count, err := strconv.Atoi(arguments[3])
		check(err)
		compression := "gzip"
		if len(arguments) > 4 {
			compression = arguments[4]
		}
		send(arguments[1], arguments[2], count, compression)
	default:
		log.Fatal("see the comment at the start of main.go")
	}
}
