// Writes numbered documents with the official clients, versions 7, 8 and 9: elasticsearch-clients ADDRESS FIRST COUNT, COUNT with each.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	es7 "github.com/elastic/go-elasticsearch/v7"
	util7 "github.com/elastic/go-elasticsearch/v7/esutil"
	es8 "github.com/elastic/go-elasticsearch/v8"
	util8 "github.com/elastic/go-elasticsearch/v8/esutil"
	es9 "github.com/elastic/go-elasticsearch/v9"
	util9 "github.com/elastic/go-elasticsearch/v9/esutil"
)

var taken atomic.Int64

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func document(n int) io.ReadSeeker { return strings.NewReader(fmt.Sprintf(`{"n":%d}`, n)) }

func version7(address string, first, count int) {
	client, err := es7.NewClient(es7.Config{Addresses: []string{address}, Username: "agent", Password: "secret", DiscoverNodesOnStart: true})
	must(err)
	info, err := client.Info()
	must(err)
	info.Body.Close()
	indexer, err := util7.NewBulkIndexer(util7.BulkIndexerConfig{Client: client, Index: "go", FlushBytes: 20000})
	must(err)
	for n := first; n < first+count; n++ {
		must(indexer.Add(context.Background(), util7.BulkIndexerItem{
			Action: "create", DocumentID: "go7-" + strconv.Itoa(n), Body: document(n),
			OnSuccess: func(context.Context, util7.BulkIndexerItem, util7.BulkIndexerResponseItem) { taken.Add(1) },
			OnFailure: func(_ context.Context, _ util7.BulkIndexerItem, item util7.BulkIndexerResponseItem, err error) { log.Fatal(item, err) },
		}))
	}
	must(indexer.Close(context.Background()))
}

func version8(address string, first, count int) {
	client, err := es8.NewClient(es8.Config{Addresses: []string{address}, Username: "agent", Password: "secret", CompressRequestBody: true})
	must(err)
	info, err := client.Info()
	must(err)
	info.Body.Close()
	indexer, err := util8.NewBulkIndexer(util8.BulkIndexerConfig{Client: client, Index: "go", FlushBytes: 20000})
	must(err)
	for n := first; n < first+count; n++ {
		must(indexer.Add(context.Background(), util8.BulkIndexerItem{
			Action: "index", Body: document(n),
			OnSuccess: func(context.Context, util8.BulkIndexerItem, util8.BulkIndexerResponseItem) { taken.Add(1) },
			OnFailure: func(_ context.Context, _ util8.BulkIndexerItem, item util8.BulkIndexerResponseItem, err error) { log.Fatal(item, err) },
		}))
	}
	must(indexer.Close(context.Background()))
}

func version9(address string, first, count int) {
	client, err := es9.NewTypedClient(es9.Config{Addresses: []string{address}, Username: "agent", Password: "secret"})
	must(err)
	answer, err := client.Info().Do(context.Background())
	must(err)
	if answer.Tagline != "You Know, for Search" {
		log.Fatal(answer)
	}
	plain, err := es9.NewClient(es9.Config{Addresses: []string{address}, Username: "agent", Password: "secret"})
	must(err)
	indexer, err := util9.NewBulkIndexer(util9.BulkIndexerConfig{Client: plain, Index: "go", FlushBytes: 20000})
	must(err)
	for n := first; n < first+count; n++ {
		must(indexer.Add(context.Background(), util9.BulkIndexerItem{
			Action: "index", DocumentID: "go9-" + strconv.Itoa(n), Body: document(n),
			OnSuccess: func(context.Context, util9.BulkIndexerItem, util9.BulkIndexerResponseItem) { taken.Add(1) },
			OnFailure: func(_ context.Context, _ util9.BulkIndexerItem, item util9.BulkIndexerResponseItem, err error) { log.Fatal(item, err) },
		}))
	}
	must(indexer.Close(context.Background()))
}

func main() {
	address := os.Args[1]
	first, err := strconv.Atoi(os.Args[2])
	must(err)
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	version7(address, first, count)
	version8(address, first+count, count)
	version9(address, first+2*count, count)
	if taken.Load() != int64(3*count) {
		log.Fatal(taken.Load(), " were taken")
	}
	fmt.Println(es7.Version, es8.Version, es9.Version)
}
