//! Messages as a whole, and settings.

use crate::testing::{build_sender, documents, encode, lines};

/// The messages that events become with these settings, in a request over UDP without what separates them.
fn messages(settings: &str, events: &[&str]) -> Vec<String> {
    let output = build_sender(
        &super::SPEC,
        &format!("{{transport: udp, address: localhost, {settings}}}"),
    );
    let output = output.unwrap_or_else(|error| panic!("{settings}: {error}"));
    let encoded = encode(&*output, &documents(events));
    crate::socket::framing::datagrams(&encoded.bytes)
        .map(|message| String::from_utf8(message.to_vec()).expect("UTF-8"))
        .collect()
}

const RECEIVED: &str = r#"{"@timestamp":"2003-10-11T22:14:15.003Z","message":"'su root' failed","host":{"name":"collector"},"log":{"syslog":{"priority":34,"facility":{"code":4,"name":"auth"},"severity":{"code":2,"name":"Critical"},"version":"1","hostname":"mymachine","appname":"su","procid":"230","msgid":"ID47","structured_data":{"exampleSDID@32473":{"iut":"3","eventID":"1011"}}}}}"#;

#[test]
fn what_was_received_goes_back_to_where_it_was() {
    assert_eq!(
        messages("", &[RECEIVED]),
        [
            r#"<34>1 2003-10-11T22:14:15.003Z mymachine su 230 ID47 [exampleSDID@32473 iut="3" eventID="1011"] 'su root' failed"#
        ]
    );
    assert_eq!(
        messages("standard: rfc3164, timezone: '+02:00'", &[RECEIVED]),
        ["<34>Oct 12 00:14:15 mymachine su[230]: 'su root' failed"]
    );
}

#[test]
fn events_that_are_no_messages_become_some() {
    for (settings, event, expected) in [
        (
            "",
            r#"{"a":1}"#,
            r#"<13>1 1970-01-01T00:00:00.000Z test-host - - - - {"a":1}"#,
        ),
        (
            "standard: rfc3164, timezone: UTC",
            r#"{"message":"x","process":{"pid":7}}"#,
            "<13>Jan  1 00:00:00 test-host millpond[7]: x",
        ),
        (
            "facility: local7, severity: '%{level}', hostname: 'h %{a}', appname: app, procid: 1, msgid: 'x]'",
            r#"{"message":"x","level":"fatal","a":"\u00e9"}"#,
            "<186>1 1970-01-01T00:00:00.000Z h__ app 1 x] - x",
        ),
        (
            "bom: true, structured_data: {event@32473.id: '%{@metadata.id}', event@32473.a: '%{a}'}, structured_data_field: sd",
            r#"{"message":"x","sd":{"b":{"c":1}}}"#,
            "<13>1 1970-01-01T00:00:00.000Z test-host - - - [event@32473 id=\"ID\"][b c=\"1\"] \u{feff}x",
        ),
        (
            "codec: json",
            r#"{"message":"x","log":{"level":"err"}}"#,
            r#"<11>1 1970-01-01T00:00:00.000Z test-host - - - - {"message":"x","log":{"level":"err"}}"#,
        ),
    ] {
        let shown = messages(settings, &[event]);
        let id = shown[0]
            .split_once("id=\"")
            .and_then(|(_, rest)| rest.split_once('"'));
        let shown = id.map_or(shown[0].clone(), |(id, _)| shown[0].replace(id, "ID"));
        assert_eq!(shown, expected, "{settings}");
    }
}

#[test]
fn each_row_has_its_own_parts() {
    let shown = messages(
        "",
        &[
            r#"{"message":"a","host":{"name":"one"},"log":{"level":"debug"}}"#,
            r#"{"message":"b","log":{"level":"error"}}"#,
            r#"{"message":"c","host":{"name":"three"},"log":{"syslog":{"hostname":"four"}}}"#,
        ],
    );
    let starts = [
        "<15>1 T one - - - - a",
        "<11>1 T test-host - - - - b",
        "<13>1 T four - - - - c",
    ];
    let shown: Vec<_> = shown
        .iter()
        .map(|text| text.replace("1970-01-01T00:00:00.000Z", "T"))
        .collect();
    assert_eq!(shown, starts);
}

#[test]
fn messages_end_as_the_framing_says() {
    for (settings, expected) in [
        ("", "50 M a\nb43 M c"),
        ("framing: lf", "M a#012b\nM c\n"),
        ("framing: nul", "M a\nb\0M c\0"),
    ] {
        let settings = format!("{{transport: tcp, address: h, {settings}}}");
        let output = build_sender(&super::SPEC, &settings).expect("settings");
        let events = [r#"{"message":"a\nb"}"#, r#"{"message":"c"}"#];
        let encoded = encode(&*output, &documents(&events));
        let text = String::from_utf8(encoded.bytes).expect("UTF-8");
        let header = "<13>1 1970-01-01T00:00:00.000Z test-host - - - - ";
        let length = header.len();
        let expected = expected
            .replace("50", &(length + 3).to_string())
            .replace("43", &(length + 1).to_string());
        assert_eq!(text.replace(header, "M "), expected, "{settings}");
        assert_eq!(encoded.rows, 2);
    }
}

#[test]
fn lines_of_text_are_messages() {
    let settings = "{transport: tcp, address: h, framing: lf}";
    let output = build_sender(&super::SPEC, settings).expect("settings");
    let encoded = encode(&*output, &lines(&["one", "two"]));
    let text = String::from_utf8(encoded.bytes).expect("UTF-8");
    assert_eq!(
        text,
        "<13>1 1970-01-01T00:00:00.000Z test-host - - - - one\n<13>1 1970-01-01T00:00:00.000Z test-host - - - - two\n"
    );
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    for (settings, part) in [
        (
            "transport: udp, address: h, tls: {}",
            "`tls` requires `transport: tcp`",
        ),
        (
            "transport: udp, address: h, framing: lf",
            "`framing` requires",
        ),
        (
            "transport: tcp, address: h, kind: stream",
            "`kind` requires `transport: unix`",
        ),
        (
            "transport: tcp, address: h, oversized: truncate",
            "`oversized` requires",
        ),
        (
            "transport: tcp, address: h, framing: none",
            "does not say where it ends",
        ),
        (
            "transport: tcp, address: h, standard: rfc3164, msgid: x",
            "`msgid` requires `standard: rfc5424`",
        ),
        (
            "transport: tcp, address: h, facility: local8",
            "expected a facility",
        ),
        (
            "transport: tcp, address: h, severity: 8",
            "expected a severity",
        ),
        ("transport: tcp, address: h, severity: '%{'", "not closed"),
        ("transport: tcp, address: h, timezone: Nowhere", "Nowhere"),
        (
            "transport: tcp, address: h, structured_data: {'a b.c': d}",
            "cannot be a name",
        ),
        (
            "transport: tcp, address: h, structured_data: {a: d}",
            "expected ELEMENT.PARAMETER",
        ),
        ("transport: tcp, address: h, codec: msgpack", "UTF-8"),
        ("transport: tcp, address: '5140'", "expected HOST:PORT"),
        ("transport: unix, address: ''", "expected the path"),
        (
            "transport: udp, address: h, max_datagram_bytes: 1MiB",
            "at most 65507",
        ),
        ("transport: xyz, address: h", "xyz"),
    ] {
        let error = build_sender(&super::SPEC, &format!("{{{settings}}}")).err();
        let error = error
            .unwrap_or_else(|| panic!("{settings} was taken"))
            .to_string();
        assert!(error.contains(part), "{settings}: {error}");
    }
}
