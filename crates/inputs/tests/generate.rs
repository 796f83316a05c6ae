//! The input `generate`.

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use batch::Batch;
use common::{Bench, Run, Seen, build, events};

fn generate(settings: &str) -> Run<Vec<Seen>> {
    let input = build("generate", settings).unwrap_or_else(|error| panic!("{error}"));
    Bench::default().run(input, events)
}

/// The events as they were made, without time of reading and host.
fn texts(settings: &str) -> Vec<String> {
    let run = generate(settings);
    assert_eq!(run.result, Ok(()));
    let text = |seen: Seen| {
        seen.message
            .map_or(seen.json, |text| String::from_utf8(text).expect("UTF-8"))
    };
    run.batches.into_iter().flatten().map(text).collect()
}

#[test]
fn the_seed_decides_everything() {
    for format in ["apache", "suricata", "syslog"] {
        let one = texts(&format!("{{format: {format}, count: 5k}}"));
        assert_eq!(one.len(), 5000);
        assert_eq!(
            one,
            texts(&format!("{{format: {format}, count: 5k, seed: 0}}"))
        );
        assert_eq!(
            one[..100],
            texts(&format!("{{format: {format}, count: 100}}")),
            "more events change no earlier one"
        );
        assert_ne!(
            one,
            texts(&format!("{{format: {format}, count: 5k, seed: 1}}"))
        );
        let ids = |seed| {
            generate(&format!("{{format: {format}, count: 1, seed: {seed}}}")).batches[0][0].id
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
    }
}

#[test]
fn apache_lines_look_real() {
    let lines = texts("{format: apache, count: 30k}");
    let average = lines.iter().map(String::len).sum::<usize>() / lines.len();
    assert!((220..=255).contains(&average), "{average}");
    let (whole, cut): (Vec<&String>, Vec<&String>) = lines
        .iter()
        .partition(|line| line.matches('"').count() == 6);
    assert_eq!(cut.len(), 3, "one in 10,000 is cut off");
    assert!(
        lines[0].contains(" [01/Jan/2026:00:00:00 +0000] \""),
        "{}",
        lines[0]
    );
    assert!(
        lines[29_000].contains(" [01/Jan/2026:00:00:29 +0000] \""),
        "{}",
        lines[29_000]
    );
    let different = |part: fn(&str) -> &str| {
        whole
            .iter()
            .map(|line| part(line))
            .collect::<HashSet<_>>()
            .len()
    };
    assert!(different(|line| line.split(' ').next().unwrap_or("")) > 1000);
    assert!(different(|line| line.rsplit('"').nth(1).unwrap_or("")) > 400);
    let without_referrer = whole
        .iter()
        .filter(|line| line.contains(" \"-\" \""))
        .count();
    assert!(
        (9_000..=15_000).contains(&without_referrer),
        "{without_referrer}"
    );
    assert!(whole.iter().any(|line| line.contains("\" 304 - \"")));
}

#[test]
fn suricata_documents_are_valid_and_in_normal_form() {
    let lines = texts("{format: suricata, count: 10k}");
    let average = lines.iter().map(String::len).sum::<usize>() / lines.len();
    assert!((670..=730).contains(&average), "{average}");
    let mut types = HashSet::new();
    for line in &lines {
        let scan = batch::json::validate_object(line.as_bytes())
            .unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(!scan.rewrite && !scan.dotted_keys, "{line}");
        let document: serde_json::Value = serde_json::from_str(line).expect("valid");
        types.insert(document["event_type"].as_str().expect("a text").to_owned());
        assert!(
            document["flow_id"].as_u64().is_some() && document["src_ip"].is_string(),
            "{line}"
        );
    }
    assert_eq!(types.len(), 5, "{types:?}");
}

#[test]
fn syslog_lines_look_real() {
    for line in texts("{format: syslog, count: 10k}") {
        let (priority, rest) = line
            .strip_prefix('<')
            .and_then(|rest| rest.split_once('>'))
            .expect("a priority");
        assert!(priority.parse::<u8>().expect("a number") < 192, "{line}");
        assert!(
            rest.starts_with("Jan  1 00:00:0") && rest.contains(": "),
            "{line}"
        );
    }
}

#[test]
fn places_are_those_of_a_file_with_these_lines() {
    let run = generate("{format: apache, count: 2k}");
    let mut offset = 0;
    for seen in run.batches.iter().flatten() {
        assert_eq!(seen.start, offset);
        offset += seen.message.as_ref().expect("text").len() as u64 + 1;
        assert_eq!(seen.end, offset);
    }
    assert_eq!(run.metrics.snapshot().bytes, offset);
}

#[test]
fn a_rate_is_kept() {
    let input =
        build("generate", "{format: syslog, rate: 2000, count: 400}").expect("valid settings");
    let start = Instant::now();
    let run = Bench::default().run(input, Batch::len);
    assert_eq!(run.batches.iter().sum::<usize>(), 400);
    assert!(
        start.elapsed() >= Duration::from_millis(195),
        "{:?}",
        start.elapsed()
    );
    assert!(
        run.batches.len() >= 3,
        "events are not held back: {:?}",
        run.batches
    );
}

#[test]
fn without_a_count_it_goes_on_until_it_is_stopped() {
    let bench = Bench {
        delay: Duration::from_millis(1),
        ..Bench::default()
    };
    let stop = bench.stop.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        stop.stop();
    });
    let run = bench.run(
        build("generate", "format: apache").expect("valid settings"),
        Batch::len,
    );
    stopper.join().expect("no panic");
    assert!(!run.batches.is_empty());
    assert_eq!(run.result, Ok(()));
}

#[test]
fn settings_that_cannot_be() {
    for (settings, told) in [
        ("format: nginx", "nginx"),
        ("{format: apache, rate: 0}", "rate"),
        ("{}", "format"),
    ] {
        let error = build("generate", settings)
            .err()
            .unwrap_or_else(|| panic!("{settings} is refused"))
            .to_string();
        assert!(error.contains(told), "{settings}: {error}");
    }
}
