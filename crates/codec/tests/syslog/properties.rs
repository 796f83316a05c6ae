//! What holds for any line: nothing is lost, and what was written is read.

use batch::{FieldPath, json};
use codec::syslog::{Format, Syslog};
use datetime::Zone;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::lines::LINES;
use crate::{batch_of, event_of, read};

/// Whether what was read accounts for all of the line: what is in no field says nothing.
fn check_whole(line: &str, event: &Value) {
    let message = event["message"].as_str().expect("a text");
    if event.get("tags").is_some() {
        assert_eq!(message, line);
        assert_eq!(event.get("syslog"), None);
        return;
    }
    let mut header = line
        .strip_suffix(message)
        .expect("the text is the line's end");
    let fields = &event["syslog"];
    let is_ietf = fields.get("version").is_some();
    let mut gaps = Vec::new();
    for key in ["version", "hostname", "appname", "procid", "msgid"] {
        if let Some(part) = fields.get(key).and_then(Value::as_str) {
            let (gap, rest) = header.split_once(part).expect("parts follow each other");
            gaps.push(gap);
            header = rest;
        }
    }
    gaps.push(header);
    if let Some(data) = fields.get("structured_data") {
        assert!(header.contains('[') && data.is_object());
        gaps.pop();
    }
    let left: String = gaps.concat();
    // The zone of a time is no field of its own.
    let is_zone = |word: &&str| {
        let name = word.strip_suffix(':').unwrap_or(word);
        (1..=5).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_uppercase())
    };
    let zone = left.split(' ').find(is_zone).unwrap_or_default();
    let left = left.replacen(zone, "", 1);
    let words = left.chars().filter(|c| c.is_alphabetic()).count();
    // A month has three letters, an RFC 3339 time two.
    assert!(words <= 3, "{left:?} of {line:?}");
    let signs = |c: char| c.is_ascii_alphanumeric() || "<> :.,+-[]*\u{FEFF}".contains(c);
    assert!(left.chars().all(signs) || is_ietf, "{left:?} of {line:?}");
}

/// A line that is nearly a message: one of the tables with some characters replaced, put in or taken out.
fn mutated() -> impl Strategy<Value = String> {
    let ietf = [
        "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - x",
        "<165>1 - host app - ID47 [a@1 iut=\"3\" b.c=\"a\\]\\\"\"][b@1 class=\"high\"] \u{FEFF}An entry",
    ];
    let lines: Vec<&str> = LINES.iter().map(|row| row.0).chain(ietf).collect();
    let sign = prop_oneof![
        proptest::sample::select(" -<>[]:\"\\=.1Tz\u{FEFF}é\0".chars().collect::<Vec<_>>()),
        any::<char>(),
    ];
    let edits = proptest::collection::vec((any::<prop::sample::Index>(), 0..3, sign), 0..6);
    (proptest::sample::select(lines), edits).prop_map(|(line, edits)| {
        let mut chars: Vec<char> = line.chars().collect();
        for (place, kind, sign) in edits {
            let at = place.index(chars.len() + 1);
            match kind {
                0 => chars.insert(at, sign),
                1 if at < chars.len() => chars[at] = sign,
                _ => chars.truncate(at.max(3)),
            }
        }
        chars.into_iter().collect()
    })
}

fn formats() -> impl Strategy<Value = Format> {
    proptest::sample::select(vec![Format::Auto, Format::Rfc3164, Format::Rfc5424])
}

/// A field of RFC 5424's header.
fn word() -> &'static str {
    "[!-,.-~][!-~]{0,9}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_is_lost_of_any_line(format in formats(), line in prop_oneof![mutated(), any::<String>()]) {
        check_whole(&line, &read(format, &line));
    }

    #[test]
    fn structured_data_is_json_in_normal_form(text in r#"\[[ab]( [ab.]="[]ab\\"]{0,4}"){0,3}\](\[[ab]\])?"#) {
        let line = format!("<7>1 - - - - - {text}");
        let mut batch = batch_of(&[&line], 0);
        if Syslog::new(Format::Auto, Zone::UTC).apply(&mut batch).failures == 0 {
            let path = FieldPath::from_keys(["log", "syslog", "structured_data"]);
            let column = batch.column(&path);
            let batch::Value::Json(data) = column.value(0) else { panic!("an object") };
            let scan = json::validate_object(data).expect("JSON");
            prop_assert!(!scan.rewrite);
        }
    }

    #[test]
    fn what_is_written_is_read(
        priority in 0..192u32,
        seconds in -9_000_000_000..9_000_000_000i64,
        micros in 0..1_000_000i32,
        parts in proptest::array::uniform4(proptest::option::of(word())),
        data in proptest::collection::btree_map(
            "[a-z.@]{1,4}",
            proptest::collection::btree_map("[a-z.\\\\]{1,4}", any::<String>(), 0..4),
            0..3,
        ),
        message in any::<String>(),
    ) {
        let time = Timestamp::new(seconds, micros * 1000).expect("a time");
        let nil = |part: &Option<String>| part.clone().unwrap_or("-".into());
        let mut text = String::new();
        for (id, params) in &data {
            text += &format!("[{id}");
            for (name, value) in params {
                let value = value.replace('\\', r"\\").replace('"', "\\\"").replace(']', "\\]");
                text += &format!(" {name}=\"{value}\"");
            }
            text += "]";
        }
        if data.is_empty() {
            text = "-".into();
        }
        let [host, app, process, id] = parts.each_ref().map(nil);
        let line = format!("<{priority}>1 {time:.6} {host} {app} {process} {id} {text} {message}");
        let event = read(Format::Auto, &line);
        let written: Timestamp = event["@timestamp"].as_str().expect("a text").parse().expect("a time");
        prop_assert_eq!(written, time);
        let message = message.strip_prefix('\u{FEFF}').unwrap_or(&message);
        prop_assert_eq!(event["message"].as_str(), Some(message));
        let fields = &event["syslog"];
        prop_assert_eq!(&fields["priority"], priority);
        for (key, part) in ["hostname", "appname", "procid", "msgid"].into_iter().zip(&parts) {
            let found = fields.get(key).and_then(Value::as_str);
            prop_assert_eq!(found, part.as_deref(), "{}", key);
        }
        let expected = (!data.is_empty()).then(|| json!(data));
        prop_assert_eq!(fields.get("structured_data"), expected.as_ref());
    }

    #[test]
    fn a_year_left_out_is_the_one_it_was(
        received in 86_400 * 400..4_000_000_000i64,
        before in -86_400..86_400 * 364 - 7200i64,
        (zone, offset) in proptest::sample::select(vec![
            ("+00:00", Some(0)),
            ("-11:00", Some(-39_600)),
            ("+13:30", Some(48_600)),
            ("Europe/Berlin", None),
            ("America/New_York", None),
        ]),
    ) {
        // A day before the clocks are put forward or back ends an hour sooner or later than a day after the receive
        // time, also a year later, and of the two hours that a clock shows the first is taken: all of that is kept out.
        let rules = Zone::named(zone).expect("a zone");
        let before = before.max(3600 - 86_400);
        let time = Timestamp::from_second(received - before).expect("a time");
        let local = match offset {
            Some(seconds) => TimeZone::fixed(Offset::from_seconds(seconds).expect("an offset")),
            None => TimeZone::get(zone).expect("a zone"),
        };
        let shown = time.to_zoned(local);
        prop_assume!(shown.datetime().to_zoned(shown.time_zone().clone()).expect("a time").timestamp() == time);
        let line = format!("{} web su: x", shown.strftime("%b %e %H:%M:%S"));
        let (event, _) = event_of(&Syslog::new(Format::Auto, rules), &line, received * 1_000_000_000);
        let found: Timestamp = event["@timestamp"].as_str().expect("a text").parse().expect("a time");
        prop_assert_eq!(found, time, "{}", line);
    }
}
