//! The processor `lookup` in a service: a table that changes while events flow.

use std::fs;

use serde_json::json;

use crate::program::Folder;
use crate::running::{Service, append};

#[test]
fn a_table_that_changes_is_read_again_and_a_broken_one_leaves_the_last() {
    let folder = Folder::new();
    let event = "{\"ip\":\"10.0.0.1\"}\n";
    let input = folder.write("in.ndjson", event);
    let table = folder.write("hosts.csv", "ip,host\n10.0.0.1,one\n");
    let out = folder.path("out.ndjson");
    let configuration = json!({
        "api": false,
        "pipelines": { "main": {
            "input": { "file": { "paths": [input] } },
            "processors": [{ "lookup": { "fields": ["ip"], "table": table } }],
            "output": { "file": { "path": out } },
        } },
    });
    let path = folder.write("service.yaml", configuration.to_string());
    let mut service = Service::start(&folder, &["run", &path]);
    let last = || {
        append(&input, event);
        let text = fs::read_to_string(&out).unwrap_or_default();
        text.lines().next_back().unwrap_or_default().to_owned()
    };
    let found = |name: &str| format!("{{\"ip\":\"10.0.0.1\",\"host\":\"{name}\"}}");
    service.until("the first table", || last() == found("one"));
    // As an editor does it: another file takes the place of the table.
    let new = folder.write("new.csv", "ip,host\n10.0.0.1,two\n");
    fs::rename(new, &table).expect("is renamed");
    service.until("the second table", || last() == found("two"));
    folder.write("hosts.csv", "no such columns\n");
    let said = service.said_in();
    service.until("a warning", || {
        assert_eq!(last(), found("two"));
        let said = fs::read_to_string(&said).unwrap_or_default();
        said.contains("has changed and cannot be used")
    });
    folder.write("hosts.csv", "ip,host\n10.0.0.1,three\n");
    service.until("the third table", || last() == found("three"));
    service.end();
}
