//! The processor over batches, with databases that `testkit` makes.

use super::*;
use crate::testing::{batch_of, build, build_yaml, lines_of, process};
use serde_json::json;
use testkit::mmdb::write_database;

/// A file with this content, gone when it is dropped.
fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    file
}

fn city() -> tempfile::NamedTempFile {
    let oxford = json!({
        "city": { "names": { "en": "Oxford", "de": "Oxford" } },
        "continent": { "code": "EU", "names": { "en": "Europe" } },
        "country": { "iso_code": "GB", "names": { "en": "United Kingdom" } },
        "location": { "latitude": 51.752, "longitude": -1.2578, "time_zone": "Europe/London" },
        "postal": { "code": "OX1" },
        "subdivisions": [{ "iso_code": "ENG", "names": { "en": "England" } }, { "iso_code": "OXF", "names": { "en": "Oxfordshire" } }],
    });
    file(&write_database(
        "GeoLite2-City",
        &[
            (
                "81.2.0.0/16",
                json!({ "location": { "latitude": 51.5, "longitude": 0.0 }, "country": { "names": { "en": "\"UK\"" } } }),
            ),
            ("81.2.69.0/24", oxford.clone()),
            ("81.3.0.0/16", json!({ "country": { "iso_code": "GB" } })),
            ("2001:db8::/32", oxford),
        ],
    ))
}

/// `geoip` and the functions of addresses read the same texts as the same addresses, so that `if: "!ip.isPrivate(a)"` keeps out of
/// `geoip` what it should.
#[test]
fn the_functions_of_addresses_agree_on_what_an_address_is() {
    use expr::Expr;
    let everywhere = json!({ "location": { "latitude": 1.0, "longitude": 2.0 }, "country": { "iso_code": "XX" } });
    let networks = [
        "8.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "224.0.0.0/4",
        "2606::/16",
        "fd00::/8",
        "fe80::/10",
    ];
    let networks = networks.map(|network| (network, everywhere.clone()));
    let database = file(&write_database("GeoLite2-City", &networks));
    let (is_valid, is_private) = ("ip.isValid(a)", "ip.isValid(a) && ip.isPrivate(a)");
    let holds = |text: &str, event: &str| {
        let batch = batch_of([event]);
        let rows = batch.alive().clone();
        Expr::parse_condition(text)
            .unwrap()
            .filter(&batch, &rows)
            .holds
            .contains(0)
    };
    for (value, valid, private) in [
        ("\"10.1.2.3\"", true, true),
        ("\" 192.168.0.1 \"", true, true),
        ("\"100.64.0.1\"", true, true),
        ("\"::ffff:172.16.0.1\"", true, true),
        ("[\"127.0.0.1\",\"8.8.8.8\"]", true, true),
        ("\"fd00::1\"", true, true),
        ("\"fe80::1\"", true, true),
        ("\"224.0.0.1\"", true, true),
        ("\"8.8.8.8\"", true, false),
        ("[\"8.8.8.8\",\"10.0.0.1\"]", true, false),
        ("\"::ffff:8.8.8.8\"", true, false),
        ("\"2606:4700::1111\"", true, false),
        ("\"10.1.2\"", false, false),
        ("\"010.1.2.3\"", false, false),
        ("\"fe80::1%eth0\"", false, false),
        ("\"8.8.8.8:53\"", false, false),
        ("\"\"", false, false),
        ("[]", false, false),
        ("17", false, false),
    ] {
        let event = format!("{{\"a\":{value}}}");
        assert_eq!(holds(is_valid, &event), valid, "{value}");
        assert_eq!(holds(is_private, &event), private, "{value}");
        // The database knows all of these addresses.
        let found = run("target: g", &database, &[&event]);
        let is_found = found[0].contains("\"XX\"");
        assert_eq!(is_found, valid, "{value}: {found:?}");
    }
}

fn asn() -> tempfile::NamedTempFile {
    let network = json!({ "autonomous_system_number": 4_200_000_000u32, "autonomous_system_organization": "Example" });
    file(&write_database("GeoLite2-ASN", &[("81.2.0.0/15", network)]))
}

fn run(settings: &str, database: &tempfile::NamedTempFile, events: &[&str]) -> Vec<String> {
    let settings = format!(
        "{{field: a, database: {:?}, {settings}}}",
        database.path().to_str().unwrap()
    );
    let mut processor = build_yaml(&SPEC, &settings).unwrap_or_else(|error| panic!("{error}"));
    let mut batch = batch_of(events.iter().copied());
    process(processor.as_mut(), &mut batch);
    lines_of(&batch)
}

#[test]
fn a_known_address_gets_what_the_database_knows() {
    let geo = r#""geo":{"city_name":"Oxford","continent_code":"EU","continent_name":"Europe","country_iso_code":"GB","country_name":"United Kingdom","region_iso_code":"GB-OXF","region_name":"Oxfordshire","postal_code":"OX1","timezone":"Europe/London","location":{"lat":51.752,"lon":-1.2578}}"#;
    let uk = r#""geo":{"country_name":"\"UK\"","location":{"lat":51.5,"lon":0.0}}"#;
    let city = city();
    for (address, ip, rest) in [
        ("81.2.69.142", "81.2.69.142", geo),
        ("2001:DB8:0::1", "2001:db8::1", geo),
        ("::ffff:81.2.69.1", "81.2.69.1", geo),
        ("81.2.70.1", "81.2.70.1", uk),
    ] {
        let event = format!(r#"{{"a":"{address}"}}"#);
        let expected = format!(r#"{{"a":"{address}","geoip":{{"ip":"{ip}",{rest}}}}}"#);
        assert_eq!(run("", &city, &[&event]), [expected]);
    }
    let event = r#"{"a":"81.2.69.142","x":{"y":1}}"#;
    let expected = r#"{"a":"81.2.69.142","x":{"y":1,"geo":{"country_iso_code":"GB","location":{"lat":51.752,"lon":-1.2578}}}}"#;
    assert_eq!(
        run(
            "target: x, fields: [country_iso_code, location]",
            &city,
            &[event]
        ),
        [expected]
    );
    assert_eq!(
        run("fields: [as.number]", &city, &[r#"{"a":"81.2.69.1"}"#]),
        [r#"{"a":"81.2.69.1","geoip":{}}"#]
    );
}

#[test]
fn of_a_list_the_first_address_is_looked_up() {
    let city = city();
    for list in [
        r#"["81.2.69.1","9.9.9.9"]"#,
        r#"[ " 81.2.69.1 " , 7 ]"#,
        r#"["2001:db8::1"]"#,
    ] {
        let lines = run(
            "fields: [continent_name]",
            &city,
            &[&format!(r#"{{"a":{list}}}"#)],
        );
        let expected = format!(r#"{{"a":{list},"geoip":{{"geo":{{"continent_name":"Europe"}}}}}}"#);
        assert_eq!(lines, [expected]);
    }
}

#[test]
fn two_databases_share_a_target() {
    let (city, asn) = (city(), asn());
    let events = run(
        "target: source, fields: [country_iso_code]",
        &city,
        &[r#"{"a":"81.2.69.1"}"#],
    );
    assert_eq!(
        run("target: source", &asn, &[&events[0]]),
        [
            r#"{"a":"81.2.69.1","source":{"geo":{"country_iso_code":"GB"},"ip":"81.2.69.1","as":{"number":4200000000,"organization":{"name":"Example"}}}}"#
        ]
    );
}

#[test]
fn a_miss_is_tagged_and_no_failure() {
    let city = city();
    for event in [
        r#"{"a":1}"#,
        r#"{"a":""}"#,
        r#"{"a":" "}"#,
        r#"{"a":"host"}"#,
        r#"{"a":"9.9.9.9"}"#,
        r#"{"a":"81.3.1.1"}"#,
        r#"{"a":[]}"#,
        r#"{"a":[null]}"#,
        r#"{"a":["9.9.9.9","81.2.69.1"]}"#,
    ] {
        let tagged = format!(
            r#"{},"tags":["_geoip_lookup_failure"]}}"#,
            &event[..event.len() - 1]
        );
        assert_eq!(run("", &city, &[event]), [tagged]);
    }
    for event in [r#"{"b":1}"#, r#"{"a":null}"#] {
        assert_eq!(run("", &city, &[event]), [event]);
    }
    let blocked = run(
        "",
        &city,
        &[r#"{"a":"81.2.69.1","geoip":7}"#, r#"{"a":"81.2.70.1"}"#],
    );
    assert!(
        blocked[0].contains(r#""geoip":7,"tags":["_geoip_lookup_failure"],"error""#),
        "{}",
        blocked[0]
    );
    assert!(blocked[1].contains(r#""lat":51.5"#));
}

#[test]
fn an_address_is_looked_up_once_by_each_instance() {
    let city = city();
    let stage = format!("geoip a database={}", city.path().display());
    let mut first = build(&SPEC, &stage).unwrap();
    let events = [
        r#"{"a":"81.2.69.1"}"#,
        r#"{"a":"9.9.9.9"}"#,
        r#"{"a":"81.2.69.1"}"#,
        r#"{"a":"x"}"#,
    ];
    let mut results = Vec::new();
    for counters in [
        [("cache_hits", 1), ("cache_misses", 2)],
        [("cache_hits", 3), ("cache_misses", 0)],
    ] {
        let mut batch = batch_of(events);
        process(first.as_mut(), &mut batch);
        results.push(lines_of(&batch));
        assert_eq!(first.take_counters(), counters);
    }
    let mut second = first.fork();
    let mut batch = batch_of(events);
    process(second.as_mut(), &mut batch);
    results.push(lines_of(&batch));
    assert!(
        results.iter().all(|lines| *lines == results[0]),
        "{results:?}"
    );
}

#[test]
fn what_cannot_be_used_is_refused_at_the_setting() {
    let (garbage, other) = (
        file(b"no database"),
        file(&write_database("GeoIP2-Connection-Type", &[])),
    );
    let city = city();
    let error = |settings: String| match build_yaml(&SPEC, &settings) {
        Ok(_) => panic!("{settings} is accepted"),
        Err(error) => error,
    };
    let at = |file: &tempfile::NamedTempFile| {
        format!(
            "{{field: a, database: {:?}}}",
            file.path().to_str().unwrap()
        )
    };
    for (settings, message, value) in [
        (
            "{field: a, database: /nowhere/x.mmdb}".to_owned(),
            "/nowhere/x.mmdb",
            Some("/nowhere/x.mmdb"),
        ),
        (
            at(&garbage),
            "not a MaxMind database",
            garbage.path().to_str(),
        ),
        (at(&other), "GeoIP2-Connection-Type", other.path().to_str()),
        ("{field: a}".to_owned(), "database", None),
        (
            at(&city).replace('}', ", fields: [citty_name]}"),
            "citty_name",
            Some("citty_name"),
        ),
        (
            at(&city).replace('}', ", cache_entries: 0}"),
            "room for one",
            Some("0"),
        ),
    ] {
        let error = error(settings);
        assert!(error.message().contains(message), "{error}");
        assert_eq!(error.value(), value, "{error}");
    }
}

/// A file that is cut or changed anywhere gives an error or an answer, never a panic.
#[test]
fn damaged_files_do_no_harm() {
    let bytes = std::fs::read(city().path()).unwrap();
    let look_up = |bytes: Vec<u8>| {
        if let Ok(database) = Database::new(bytes, Vec::new()) {
            for address in ["81.2.69.1", "2001:db8::1", "1.1.1.1"] {
                let mut out = Vec::new();
                let _ = database.write_object(address.parse().unwrap(), &mut out);
            }
        }
    };
    for at in 0..bytes.len() {
        look_up(bytes[..at].to_vec());
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        look_up(changed);
    }
}

/// The writer's files are sound for the reader, whatever the sizes, kinds and overlaps of what they hold.
#[test]
fn written_databases_are_sound() {
    let long = "x".repeat(70_000);
    let networks = [
        (
            "0.0.0.0/0",
            json!({ "text": "x".repeat(300), "n": -5, "list": [true, false, null, 1.5] }),
        ),
        ("10.0.0.0/8", json!({ "text": "x".repeat(29), "n": 70_000 })),
        ("10.1.2.3/32", json!({ "text": long, "n": u64::MAX })),
        ("8000::/1", json!({ "text": "" })),
        ("10.1.0.0/16", json!({ "text": "y" })),
    ];
    let reader = maxminddb::Reader::from_source(write_database("Test", &networks)).unwrap();
    reader.verify().unwrap();
    for (address, index) in [
        ("9.9.9.9", 0),
        ("10.2.0.0", 1),
        ("10.1.2.3", 2),
        ("10.1.2.4", 4),
        ("ffff::", 3),
    ] {
        let entry: serde_json::Value = reader
            .lookup(address.parse().unwrap())
            .unwrap()
            .decode()
            .unwrap()
            .unwrap();
        assert_eq!(entry["text"], networks[index].1["text"], "{address}");
    }
    assert!(!reader.lookup("1::".parse().unwrap()).unwrap().has_data());
}
