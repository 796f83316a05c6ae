// Sends profiles over gRPC with the OpenTelemetry Collector's client, in the form in which the eBPF profiler sends them.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var (
	address = flag.String("address", "127.0.0.1:4317", "the server")
	gzip    = flag.Bool("gzip", false, "compresses messages")
	useTLS  = flag.Bool("tls", false, "speaks TLS, and takes any certificate")
	bearer  = flag.String("bearer", "", "a token")
	logs    = flag.Bool("logs", false, "calls the service of logs instead")
	large   = flag.Int("large", 0, "the length of a name")
	count   = flag.Int("count", 1, "requests at the same time")
	kind    = flag.String("type", "samples", "what is counted")
	wrong   = flag.Bool("wrong", false, "refers to a stack that is not there")
)

// profiles has one sample for each kind of frame.
func profiles() pprofile.Profiles {
	all := pprofile.NewProfiles()
	d := all.Dictionary()
	text := func(text string) int32 {
		for index, known := range d.StringTable().All() {
			if known == text {
				return int32(index)
			}
		}
		d.StringTable().Append(text)
		return int32(d.StringTable().Len() - 1)
	}
	text("")
	d.MappingTable().AppendEmpty()
	d.LocationTable().AppendEmpty()
	d.FunctionTable().AppendEmpty()
	d.LinkTable().AppendEmpty()
	d.AttributeTable().AppendEmpty()
	d.StackTable().AppendEmpty()
	attribute := func(key, value string) int32 {
		a := d.AttributeTable().AppendEmpty()
		a.SetKeyStrindex(text(key))
		a.Value().SetStr(value)
		return int32(d.AttributeTable().Len() - 1)
	}
	mapping := func(file string, attributes ...int32) int32 {
		m := d.MappingTable().AppendEmpty()
		m.SetMemoryStart(0x1000)
		m.SetMemoryLimit(0x9000)
		m.SetFileOffset(0x800)
		m.SetFilenameStrindex(text(file))
		m.AttributeIndices().FromRaw(attributes)
		return int32(d.MappingTable().Len() - 1)
	}
	location := func(mapping int32, address uint64, kind, function, file string) int32 {
		l := d.LocationTable().AppendEmpty()
		l.SetMappingIndex(mapping)
		l.SetAddress(address)
		if function != "" {
			f := d.FunctionTable().AppendEmpty()
			f.SetNameStrindex(text(function))
			f.SetFilenameStrindex(text(file))
			line := l.Lines().AppendEmpty()
			line.SetFunctionIndex(int32(d.FunctionTable().Len() - 1))
			line.SetLine(7)
		}
		l.AttributeIndices().FromRaw([]int32{attribute("profile.frame.type", kind)})
		return int32(d.LocationTable().Len() - 1)
	}
	const hash = "process.executable.build_id.htlhash"
	app := mapping("app", attribute(hash, "0011"), attribute("process.executable.build_id.gnu", "aabbcc"))
	stripped := mapping("libz.so.1", attribute(hash, "ffee"))
	script := mapping("", attribute(hash, "1234"))
	kernel := mapping("vmlinux", attribute(hash, "01"))
	outer := location(app, 0x1234, "native", "", "")
	inner := []int32{
		location(kernel, 5, "kernel", "do_syscall_64", ""),
		location(stripped, 0x1099, "native", "", ""),
		location(app, 0x2234, "go", "main.main"+strings.Repeat("x", *large), "main.go"),
		location(app, 0x3234, "rust", "app::run", "run.rs"),
		location(script, 0, "jvm", "com.example.Main.run", "Main.java"),
		location(script, 0, "cpython", "compute", "app.py"),
		location(script, 0, "v8js", "handler", "server.js"),
		location(0, 0, "luajit", "tick", "tick.lua"),
		location(0, 0, "abort-marker", "", ""),
	}
	resource := all.ResourceProfiles().AppendEmpty()
	resource.Resource().Attributes().PutStr("container.id", "c0ffee")
	resource.Resource().Attributes().PutStr("service.name", "shop")
	scope := resource.ScopeProfiles().AppendEmpty()
	p := scope.Profiles().AppendEmpty()
	p.SampleType().SetTypeStrindex(text(*kind))
	p.SampleType().SetUnitStrindex(text("count"))
	p.PeriodType().SetTypeStrindex(text("cpu"))
	p.PeriodType().SetUnitStrindex(text("nanoseconds"))
	p.SetPeriod(50_000_000)
	now := pcommon.NewTimestampFromTime(time.Now())
	p.SetTime(now)
	p.SetDurationNano(5_000_000_000)
	pid := d.AttributeTable().AppendEmpty()
	pid.SetKeyStrindex(text("process.pid"))
	pid.Value().SetInt(4711)
	labels := []int32{int32(d.AttributeTable().Len() - 1), attribute("thread.name", "worker-1"), attribute("process.executable.name", "app")}
	for _, location := range inner {
		stack := d.StackTable().AppendEmpty()
		stack.LocationIndices().FromRaw([]int32{location, outer})
		sample := p.Samples().AppendEmpty()
		sample.SetStackIndex(int32(d.StackTable().Len() - 1))
		sample.AttributeIndices().FromRaw(labels)
		sample.TimestampsUnixNano().FromRaw([]uint64{uint64(now), uint64(now) + 1000})
	}
	if *wrong {
		p.Samples().At(0).SetStackIndex(99)
	}
	return all
}

func main() {
	flag.Parse()
	creds := insecure.NewCredentials()
	if *useTLS {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	conn, err := grpc.NewClient(*address, grpc.WithTransportCredentials(creds))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if *bearer != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+*bearer)
	}
	var options []grpc.CallOption
	if *gzip {
		options = append(options, grpc.UseCompressor("gzip"))
	}
	if *logs {
		_, err := plogotlp.NewGRPCClient(conn).Export(ctx, plogotlp.NewExportRequest(), options...)
		fmt.Println(status.Code(err))
		return
	}
	request := pprofileotlp.NewExportRequestFromProfiles(profiles())
	answers := make(chan string)
	for range *count {
		go func() {
			answer, err := pprofileotlp.NewGRPCClient(conn).Export(ctx, request, options...)
			if err != nil {
				answers <- fmt.Sprint(status.Code(err))
				return
			}
			answers <- fmt.Sprintf("OK, %d rejected", answer.PartialSuccess().RejectedProfiles())
		}()
	}
	counts := map[string]int{}
	for range *count {
		counts[<-answers]++
	}
	for answer, count := range counts {
		fmt.Printf("%d %s\n", count, answer)
	}
}
