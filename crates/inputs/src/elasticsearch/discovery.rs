//! What clients ask before they send documents: who the server is, what it can do, and whether what they need is there.
//!
//! Nothing is kept: what a client sets up is acknowledged, and what it asks for is not there. Clients set up then what they
//! need, and go on.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::failure::Failure;
use super::route::Question;

/// The types of processors that ingest pipelines of agents name. An agent does not set a pipeline up on a server without them.
const PROCESSORS: &[&str] = &[
    "append",
    "bytes",
    "community_id",
    "convert",
    "csv",
    "date",
    "date_index_name",
    "dissect",
    "dot_expander",
    "drop",
    "fail",
    "fingerprint",
    "foreach",
    "geoip",
    "grok",
    "gsub",
    "html_strip",
    "join",
    "json",
    "kv",
    "lowercase",
    "network_direction",
    "pipeline",
    "registered_domain",
    "remove",
    "rename",
    "reroute",
    "script",
    "set",
    "set_security_user",
    "sort",
    "split",
    "trim",
    "uppercase",
    "uri_parts",
    "urldecode",
    "user_agent",
];

/// What the server says of itself.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) version: String,
    /// Where it listens.
    pub(super) address: String,
    /// 32 hexadecimal digits.
    pub(super) uuid: String,
}

impl Server {
    /// The answer to a question that was put to this host.
    pub(super) fn answer(&self, question: Question, host: Option<&str>) -> Bytes {
        let answer = match question {
            Question::Server => self.server(),
            Question::License => json!({"license": self.license()}),
            Question::Features => self.features(),
            Question::Nodes => self.nodes(host),
            Question::Health => health(),
            Question::Settings => json!({"persistent": {}, "transient": {}}),
            Question::Lifecycle => json!({"operation_mode": "RUNNING"}),
            Question::Refresh => json!({"_shards": {"total": 1, "successful": 1, "failed": 0}}),
            Question::Empty(text) => return Bytes::from_static(text.as_bytes()),
            Question::Table => return Bytes::new(),
        };
        answer.to_string().into()
    }

    fn server(&self) -> Value {
        json!({
            "name": self.name,
            "cluster_name": "millpond",
            "cluster_uuid": self.uuid,
            "version": {
                "number": self.version,
                "build_flavor": "default",
                "build_type": "tar",
                "build_hash": "0000000000000000000000000000000000000000",
                "build_date": "2025-01-01T00:00:00.000000000Z",
                "build_snapshot": false,
                "lucene_version": "10.0.0",
                "minimum_wire_compatibility_version": "7.17.0",
                "minimum_index_compatibility_version": "7.0.0",
            },
            "tagline": "You Know, for Search",
        })
    }

    fn license(&self) -> Value {
        json!({
            "status": "active",
            "uid": self.uuid,
            "type": "basic",
            "mode": "basic",
            "issue_date": "2025-01-01T00:00:00.000Z",
            "issue_date_in_millis": 1_735_689_600_000_i64,
            "max_nodes": 1000,
            "issued_to": "millpond",
            "issuer": "millpond",
            "start_date_in_millis": -1,
        })
    }

    fn features(&self) -> Value {
        let on = json!({"available": true, "enabled": true});
        json!({
            "build": {"hash": "0000000000000000000000000000000000000000", "date": "2025-01-01T00:00:00.000Z"},
            "license": self.license(),
            "features": {
                "ilm": on, "security": on, "monitoring": {"available": true, "enabled": false}, "data_streams": on,
            },
            "tagline": "You know, for X",
        })
    }

    /// One node, at the address under which the client reached it: it may go on with nothing but this answer.
    fn nodes(&self, host: Option<&str>) -> Value {
        let port = self.address.rsplit(':').next().unwrap_or_default();
        let has_port = |host: &str| {
            host.rsplit_once(':')
                .is_some_and(|(_, port)| !port.contains(']'))
        };
        let address = match host {
            None => self.address.clone(),
            Some(host) if has_port(host) => host.to_owned(),
            Some(host) => format!("{host}:{port}"),
        };
        let processors: Vec<Value> = PROCESSORS
            .iter()
            .map(|kind| json!({"type": kind}))
            .collect();
        let node = json!({
            "name": self.name,
            "transport_address": address,
            "host": self.name,
            "version": self.version,
            "build_flavor": "default",
            "build_type": "tar",
            "roles": ["data", "ingest", "master"],
            "http": {"bound_address": [self.address], "publish_address": address, "max_content_length_in_bytes": 104_857_600},
            "ingest": {"processors": processors},
            "plugins": [],
            "modules": [],
        });
        let mut nodes = serde_json::Map::new();
        nodes.insert(self.uuid[..22].to_owned(), node);
        json!({
            "_nodes": {"total": 1, "successful": 1, "failed": 0},
            "cluster_name": "millpond",
            "nodes": nodes,
        })
    }
}

fn health() -> Value {
    json!({
        "cluster_name": "millpond",
        "status": "green",
        "timed_out": false,
        "number_of_nodes": 1,
        "number_of_data_nodes": 1,
        "active_primary_shards": 1,
        "active_shards": 1,
        "relocating_shards": 0,
        "initializing_shards": 0,
        "unassigned_shards": 0,
        "delayed_unassigned_shards": 0,
        "number_of_pending_tasks": 0,
        "number_of_in_flight_fetch": 0,
        "task_max_waiting_in_queue_millis": 0,
        "active_shards_percent_as_number": 100.0,
    })
}

/// The answer to something that a client sets up.
pub(super) fn acknowledged(index: Option<&str>) -> Bytes {
    let answer = match index {
        None => json!({"acknowledged": true}),
        Some(index) => json!({"acknowledged": true, "shards_acknowledged": true, "index": index}),
    };
    answer.to_string().into()
}

/// The answer to a question for something that is not there.
pub(super) fn absent(kind: &str, name: &str) -> Failure {
    let (error, reason) = match kind {
        "index" => (
            "index_not_found_exception",
            format!("no such index [{name}]"),
        ),
        kind => (
            "resource_not_found_exception",
            format!("{kind} [{name}] not found"),
        ),
    };
    Failure::new(StatusCode::NOT_FOUND, error, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_where_the_client_found_it() {
        let server = Server {
            name: "h".into(),
            version: "9.2.0".into(),
            address: "0.0.0.0:9200".into(),
            uuid: "0123456789abcdef0123456789abcdef".into(),
        };
        for (host, address) in [
            (None, "0.0.0.0:9200"),
            (Some("logs.example"), "logs.example:9200"),
            (Some("logs.example:80"), "logs.example:80"),
            (Some("[::1]"), "[::1]:9200"),
            (Some("[::1]:81"), "[::1]:81"),
        ] {
            let nodes = server.answer(Question::Nodes, host);
            let nodes: Value = serde_json::from_slice(&nodes).expect("JSON");
            let node = &nodes["nodes"]["0123456789abcdef012345"];
            assert_eq!(node["http"]["publish_address"], address, "{host:?}");
        }
    }
}
