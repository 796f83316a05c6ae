// Metricbeat with its module for Logstash and no other.
package main

import (
	"os"

	"github.com/elastic/beats/v7/libbeat/cmd"
	"github.com/elastic/beats/v7/libbeat/cmd/instance"
	"github.com/elastic/beats/v7/metricbeat/beater"
	_ "github.com/elastic/beats/v7/metricbeat/module/logstash"
	_ "github.com/elastic/beats/v7/metricbeat/module/logstash/node"
	_ "github.com/elastic/beats/v7/metricbeat/module/logstash/node_stats"
)

func main() {
	settings := instance.Settings{Name: "metricbeat"}
	if err := cmd.GenRootCmdWithSettings(beater.DefaultCreator(), settings).Execute(); err != nil {
		os.Exit(1)
	}
}
