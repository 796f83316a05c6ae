//! The main job: Apache lines parsed, dated, located and written.

use serde_json::{Value, json};

use crate::program::{Folder, run};

const CUT_SHORT: &str = r#"198.51.100.7 - - [17/May/2015:10:05:03 +0000] "GET /cut-short"#;

const KNOWN: &str = r#"81.2.69.160 - frank [17/May/2015:12:05:03 +0200] "GET /kibana.png?a=b HTTP/1.1" 200 203023 "http://example.com/start" "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_9_1) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/32.0.1700.77 Safari/537.36""#;

/// The job's events for some lines, with a database that knows London's 81.2.69.160/27.
fn job(lines: &str, processors: &str) -> Vec<Value> {
    let folder = Folder::new();
    let log = folder.write("access.log", lines);
    let database = folder.write("city.mmdb", testkit::sample::sample_city_database());
    let pipeline = format!(
        r#"file {log} | grok "%{{COMBINEDAPACHELOG}}" | date timestamp "dd/MMM/yyyy:HH:mm:ss Z"
           | geoip clientip database={database} | user_agent agent target=ua {processors} | stdout"#
    );
    run(&pipeline).expect(0).events()
}

#[test]
fn a_known_line_gives_every_field() {
    let events = job(&format!("{KNOWN}\n"), "");
    let event = &events[0];
    for (field, expected) in [
        ("/@timestamp", json!("2015-05-17T10:05:03.000Z")),
        ("/message", json!(KNOWN)),
        ("/clientip", json!("81.2.69.160")),
        ("/ident", json!("-")),
        ("/auth", json!("frank")),
        ("/timestamp", json!("17/May/2015:12:05:03 +0200")),
        ("/verb", json!("GET")),
        ("/request", json!("/kibana.png?a=b")),
        ("/httpversion", json!("1.1")),
        ("/response", json!("200")),
        ("/bytes", json!("203023")),
        ("/referrer", json!("\"http://example.com/start\"")),
        ("/geoip/geo/city_name", json!("London")),
        ("/geoip/geo/country_iso_code", json!("GB")),
        ("/ua/name", json!("Chrome")),
        ("/ua/os/name", json!("Mac OS X")),
        ("/ua/device/name", json!("Mac")),
        ("/log/offset", json!(0)),
    ] {
        assert_eq!(
            event.pointer(field),
            Some(&expected),
            "{field} of {event:#}"
        );
    }
    assert_eq!(
        event.get("tags"),
        None,
        "nothing failed and nothing was missed"
    );
}

#[test]
fn the_malformed_line_is_published_whole_and_nothing_else_fails() {
    let generated = run("generate apache count=999 seed=1 | stdout codec=text")
        .expect(0)
        .out;
    let events = job(&format!("{generated}{CUT_SHORT}\n"), "");
    assert_eq!(events.len(), 1000);
    let failed: Vec<&Value> = events
        .iter()
        .filter(|event| {
            event["tags"]
                .as_array()
                .is_some_and(|tags| tags.contains(&json!("_grokparsefailure")))
        })
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["message"], json!(CUT_SHORT));
    assert_eq!(failed[0].get("clientip"), None);
    assert_eq!(failed[0].get("ua"), None, "later processors skip it");
    assert_eq!(
        events
            .iter()
            .filter(|event| event.get("clientip").is_some())
            .count(),
        999
    );
}

#[test]
fn an_address_that_no_database_knows_is_tagged_and_goes_on() {
    let events = job(&KNOWN.replace("81.2.69.160", "192.0.2.1"), "");
    assert_eq!(events[0]["tags"], json!(["_geoip_lookup_failure"]));
    assert_eq!(events[0]["ua"]["name"], json!("Chrome"));
    assert_eq!(events[0].get("error"), None);
}

#[test]
fn events_keep_their_order_and_offsets() {
    let lines: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    let folder = Folder::new();
    let log = folder.write("x.log", &lines);
    let events = run(&format!("file {log} | stdout")).expect(0).events();
    assert_eq!(events.len(), 20_000);
    let mut offset = 0;
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event["message"], json!(format!("line {n}")));
        assert_eq!(event["log"]["offset"], json!(offset));
        offset += format!("line {n}\n").len();
    }
}

#[test]
fn filters_see_failed_events_and_writers_do_not() {
    let events = job(
        &format!("{CUT_SHORT}\n{KNOWN}\n"),
        r#"| where has(tags) | set seen = "yes""#,
    );
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["message"], json!(CUT_SHORT));
    assert_eq!(events[0].get("seen"), None);
}
