//! The input `file` on good and bad files.

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batch::Batch;
use common::{Bench, Run, Seen, build, events};
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("a vector takes it");
    encoder.finish().expect("a vector takes it")
}

/// A folder with these files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
        fs::write(path, content).expect("written");
    }
    folder
}

/// Runs `file` with these paths in the folder and further settings.
fn read(folder: &Path, paths: &[&str], settings: &str) -> Run<Vec<Seen>> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| folder.join(path)).collect();
    let input = build("file", &format!("paths: {paths:?}\n{settings}\n"))
        .unwrap_or_else(|error| panic!("{error}"));
    Bench::default().run(input, events)
}

fn messages(run: &Run<Vec<Seen>>) -> Vec<String> {
    let text = |seen: &Seen| {
        seen.message.clone().map_or_else(
            || seen.json.clone(),
            |text| String::from_utf8(text).expect("UTF-8"),
        )
    };
    run.batches.iter().flatten().map(text).collect()
}

/// The problems, without the folder's name.
fn problems(run: &Run<Vec<Seen>>, folder: &Path) -> Vec<String> {
    let folder = format!("{}/", folder.display());
    let problems = run
        .result
        .as_ref()
        .err()
        .map(|error| error.problems.clone())
        .unwrap_or_default();
    problems
        .iter()
        .map(|problem| problem.replace(&folder, ""))
        .collect()
}

#[test]
fn contents_of_every_kind() {
    let long = "x".repeat(2000);
    let deep = format!("{}1{}", "{\"a\":".repeat(1000), "}".repeat(1000));
    let cases: Vec<(&str, Vec<u8>, Vec<&str>)> = vec![
        ("empty", vec![], vec![]),
        ("no line end at the end", b"a\nb".to_vec(), vec!["a", "b"]),
        ("CRLF", b"a\r\n\r\nb\r\n".to_vec(), vec!["a", "", "b"]),
        ("NUL bytes", b"a\0b\n\0\n".to_vec(), vec!["a\0b", "\0"]),
        (
            "invalid UTF-8",
            b"ok\n\xFFbad\n\xC3".to_vec(),
            vec!["ok", "\u{FFFD}bad", "\u{FFFD}"],
        ),
        (
            "a long line",
            format!("{long}\nshort\n").into_bytes(),
            vec![&long[..1000], "short"],
        ),
        (
            "deep JSON as text",
            deep.clone().into_bytes(),
            vec![&deep[..1000]],
        ),
    ];
    for (name, content, expected) in cases {
        for compressed in [false, true] {
            let content = if compressed {
                gzip(&content)
            } else {
                content.clone()
            };
            let folder = folder(&[("log", &content)]);
            let run = read(folder.path(), &["log"], "max_line_bytes: 1000");
            assert_eq!(run.result, Ok(()), "{name}");
            assert_eq!(messages(&run), expected, "{name}, compressed: {compressed}");
            assert_eq!(
                run.progress.get(),
                (content.len() as u64, content.len() as u64),
                "{name}"
            );
            assert_eq!(
                run.metrics.snapshot().events_out,
                expected.len() as u64,
                "{name}"
            );
        }
    }
}

#[test]
fn counters_and_fields() {
    let folder = folder(&[("log", b"good\n\xFF\nlong line\n{}\n")]);
    let run = read(folder.path(), &["log"], "max_line_bytes: 5");
    let snapshot = run.metrics.snapshot();
    assert_eq!(snapshot.bytes, 20);
    let named: Vec<_> = snapshot.named.into_iter().collect();
    assert_eq!(named, [("invalid_utf8_lines", 1), ("truncated_lines", 1)]);
    let seen = &run.batches[0];
    assert_eq!(
        (seen[2].start, seen[2].end, seen[2].tags.as_str()),
        (7, 17, "[\"_truncated\"]")
    );
    let path = folder.path().join("log");
    assert!(
        seen[1].json.contains(&format!(
            "\"log\":{{\"file\":{{\"path\":{path:?}}},\"offset\":5}}"
        )),
        "{}",
        seen[1].json
    );
}

#[test]
fn the_first_of_each_kind_is_told() {
    let folder = folder(&[
        ("a.log", b"{}\n\xFF\nlong line\n\xFF\n"),
        ("b.log", b"also long\n{}\n"),
        ("good.log", b"{}\n"),
    ]);
    let told = |codec: &str, files: &[&str]| {
        let run = read(
            folder.path(),
            files,
            &format!("max_line_bytes: 5\ncodec: {codec}"),
        );
        let place = format!("{}/", folder.path().display());
        let shorten = |warning: &String| warning.replace(&place, "");
        run.warnings.iter().map(shorten).collect::<Vec<_>>()
    };
    let invalid = "a.log: the line at byte 3 is not valid UTF-8: invalid bytes were replaced by U+FFFD (further occurrences are only counted for an hour)";
    let cut = "a.log: the line at byte 5 is longer than `max_line_bytes` and was truncated (further occurrences are only counted for an hour)";
    let broken = "a.log: the line at byte 3 is not a JSON object: it was kept as text (further occurrences are only counted for an hour)";
    assert_eq!(told("text", &["a.log", "b.log"]), [cut, invalid]);
    assert_eq!(told("json", &["a.log", "b.log"]), [cut, invalid, broken]);
    assert_eq!(
        told("text", &["b.log", "a.log"]),
        [
            &cut.replace("a.log: the line at byte 5", "b.log: the line at byte 0"),
            invalid
        ]
    );
    assert!(told("json", &["good.log"]).is_empty());
}

#[test]
fn a_cut_event_of_several_lines_may_have_had_too_many() {
    let folder = folder(&[("a.log", b"a\n b\n c\n")]);
    let run = read(
        folder.path(),
        &["a.log"],
        "multiline: { start: '^a', max_lines: 2 }",
    );
    let said = "is longer than `max_line_bytes` or `multiline.max_lines` and was truncated";
    assert!(
        run.warnings.len() == 1 && run.warnings[0].contains(said),
        "{:?}",
        run.warnings
    );
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let folder = folder(&[
        ("marked", b"\xEF\xBB\xBF{\"a\":1}\r\n\xEF\xBB\xBF{}\n"),
        ("only", b"\xEF\xBB\xBF"),
    ]);
    let run = read(folder.path(), &["only", "marked"], "");
    assert_eq!(messages(&run), ["{\"a\":1}", "\u{FEFF}{}"]);
    let places: Vec<_> = run.batches[0].iter().map(|e| (e.start, e.end)).collect();
    assert_eq!(places, [(3, 12), (12, 18)]);
    let run = read(folder.path(), &["marked"], "codec: json");
    assert_eq!(run.batches[0][0].json, "{\"a\":1}");
    assert_eq!(
        (run.batches[0][0].tags.as_str(), run.batches[0][0].start),
        ("", 3)
    );
    assert_eq!(run.metrics.snapshot().named["broken_documents"], 1);
}

#[test]
fn files_that_cannot_be_read_do_not_stop_the_others() {
    let folder = folder(&[("a.log", b"a\n"), ("b.log", b"b\n"), ("sub/c.log", b"c\n")]);
    fs::create_dir(folder.path().join("empty")).expect("made");
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (
            &["a.log", "missing.log", "b.log"],
            &["a", "b"],
            &["missing.log: no such file"],
        ),
        (
            &["empty", "a.log"],
            &["a"],
            &["empty: no files in this folder"],
        ),
        (&["sub/", "a.log", "sub/*", "sub"], &["c", "a"], &[]),
        (&["*.txt", "b.log"], &["b"], &["no file matches *.txt"]),
        (
            &["no/such/*.log", "**/none"],
            &[],
            &["no file matches no/such/*.log", "no file matches **/none"],
        ),
        (&["a.log/x"], &[], &["a.log/x: no such file"]),
    ];
    for (paths, expected, told) in cases {
        let run = read(folder.path(), paths, "");
        assert_eq!(messages(&run), expected, "{paths:?}");
        assert_eq!(problems(&run, folder.path()), told, "{paths:?}");
    }
}

#[test]
fn a_file_that_fails_while_it_is_read() {
    // Reading the memory of a process at address 0 fails, for root too.
    let input = build("file", "paths: /proc/self/mem").expect("valid settings");
    let run = Bench::default().run(input, events);
    let problem = run
        .result
        .expect_err("it cannot be read")
        .problems
        .remove(0);
    assert!(
        problem.starts_with("/proc/self/mem: cannot be read: "),
        "{problem}"
    );
}

#[test]
fn wildcards() {
    let folder = folder(&[
        ("b.log", b"b"),
        ("a.log", b"a"),
        ("a.log.1", b"a1"),
        (".hidden.log", b"hidden"),
        ("sub/c.log", b"c"),
        ("sub/deep/d.log", b"d"),
        (".git/e.log", b"e"),
        ("x[1].log", b"x1"),
        ("x1.log", b"x"),
    ]);
    let cases: [(&[&str], &str, &[&str]); 11] = [
        (&["*.log"], "", &["a", "b", "x", "x1"]),
        (&["b.log", "*.log"], "", &["b", "a", "x", "x1"]),
        (&["?.log*"], "", &["a", "a1", "b"]),
        (&["{b,a}.log"], "", &["a", "b"]),
        (&["[b-z].log"], "", &["b"]),
        (&["**/*.log"], "", &["a", "b", "c", "d", "x", "x1"]),
        (&["sub/**/d.log"], "", &["d"]),
        (&[".*.log"], "", &["hidden"]),
        (&["x[1].log"], "", &["x1"]),
        (&["*.log*"], "exclude: ['*.1', 'x*']", &["a", "b"]),
        (
            &["**/*.log"],
            "exclude: ['**/deep/*', 'x*']",
            &["a", "b", "c"],
        ),
    ];
    for (paths, settings, expected) in cases {
        let run = read(folder.path(), paths, settings);
        assert_eq!(messages(&run), expected, "{paths:?} {settings}");
        assert_eq!(run.result, Ok(()), "{paths:?}");
    }
}

#[test]
fn settings_that_cannot_be() {
    for (settings, told) in [
        ("paths: []", "at least one path"),
        ("paths: ['a[', b]", "not a valid pattern"),
        ("{paths: a, exclude: ['{a']}", "not a valid pattern"),
        ("{paths: a, max_line_bytes: 0}", "between 1B and 1GiB"),
        ("{paths: a, max_line_bytes: 2GiB}", "between 1B and 1GiB"),
        ("{paths: a, codec: xml}", "xml"),
        ("{paths: a, path: b}", "path"),
        ("{}", "paths"),
    ] {
        let error = build("file", settings)
            .err()
            .unwrap_or_else(|| panic!("{settings} is refused"))
            .to_string();
        assert!(error.contains(told), "{settings}: {error}");
    }
}

#[test]
fn broken_gzip_gives_what_can_be_read_and_a_problem() {
    let log: String = (0..100_000).map(|n| format!("line number {n}\n")).collect();
    let packed = gzip(log.as_bytes());
    let half = &packed[..packed.len() / 2];
    let mut wrong_sum = packed.clone();
    wrong_sum[packed.len() - 5] ^= 0xFF;
    let folder = folder(&[
        ("half.gz", half),
        ("sum.gz", &wrong_sum),
        ("ok.gz", &packed),
        ("plain", b"plain\n"),
    ]);

    let run = read(folder.path(), &["half.gz", "plain"], "");
    let told = format!(
        "half.gz: the gzip data is truncated at compressed byte {}",
        half.len()
    );
    assert_eq!(problems(&run, folder.path()), [told]);
    let messages = messages(&run);
    let (last, lines) = messages.split_last().expect("there are lines");
    assert_eq!(last, "plain");
    assert!(lines.len() > 20_000, "{}", lines.len());
    let (cut, whole) = lines.split_last().expect("there are lines");
    assert!(
        whole
            .iter()
            .enumerate()
            .all(|(n, line)| *line == format!("line number {n}"))
    );
    assert!(
        format!("line number {}", whole.len()).starts_with(cut.as_str()),
        "{cut}"
    );

    let run = read(folder.path(), &["sum.gz", "ok.gz"], "");
    let told = problems(&run, folder.path());
    assert!(
        told.len() == 1 && told[0].starts_with("sum.gz: corrupt gzip data at compressed byte "),
        "{told:?}"
    );
    assert_eq!(run.metrics.snapshot().events_out, 200_000);

    let run = read(folder.path(), &["plain"], "compression: gzip");
    assert_eq!(
        problems(&run, folder.path()),
        ["plain: corrupt gzip data at compressed byte 0: not a gzip header"]
    );
    let run = read(folder.path(), &["ok.gz"], "compression: none");
    assert!(
        run.metrics.snapshot().named["invalid_utf8_lines"] > 0,
        "compressed bytes are no text"
    );
}

#[test]
fn gzip_of_several_members_and_with_garbage() {
    let members = [gzip(b"a\nb"), gzip(b""), gzip(b"c\n")].concat();
    let padded = [members.clone(), vec![0; 512]].concat();
    let garbage = [members.clone(), b"more".to_vec()].concat();
    let folder = folder(&[
        ("members", &members),
        ("padded", &padded),
        ("garbage", &garbage),
    ]);
    for (name, warned) in [("members", false), ("padded", false), ("garbage", true)] {
        let run = read(folder.path(), &[name], "");
        assert_eq!(messages(&run), ["a", "bc"], "{name}");
        assert_eq!(run.result, Ok(()), "{name}");
        assert_eq!(
            run.warnings.len(),
            usize::from(warned),
            "{name}: {:?}",
            run.warnings
        );
    }
}

#[test]
fn json_and_msgpack_files() {
    let folder = folder(&[
        ("json", b"{\"a\":1}\n\n{\"a\":\n{\"message\":\"m\"}\n"),
        ("msgpack", b"\x81\xA1a\x01\x80\x81\xA1a\x02\xC1\x80"),
    ]);
    let run = read(folder.path(), &["json"], "codec: json");
    let seen = &run.batches[0];
    assert_eq!(seen[0].json, "{\"a\":1}");
    assert_eq!(seen[1].message.as_deref(), Some(&b"{\"a\":"[..]));
    assert_eq!(seen[1].tags, "[\"_jsonparsefailure\"]");
    assert_eq!(
        seen[1].error,
        "invalid JSON: unexpected end of JSON at byte 5 of the line"
    );
    assert_eq!(seen[2].json, "{\"message\":\"m\"}");
    assert_eq!(
        (
            run.metrics.snapshot().failures,
            run.metrics.snapshot().named["broken_documents"]
        ),
        (1, 1)
    );
    assert_eq!(run.result, Ok(()));

    let run = read(folder.path(), &["json"], "codec: json\nadd_fields: true");
    assert!(
        run.batches[0][0].json.contains("\"log\":{"),
        "{}",
        run.batches[0][0].json
    );

    let run = read(folder.path(), &["msgpack", "json"], "codec: msgpack");
    assert_eq!(
        run.batches[0]
            .iter()
            .map(|seen| seen.json.as_str())
            .collect::<Vec<_>>(),
        ["{\"a\":1}", "{}", "{\"a\":2}"]
    );
    let told = problems(&run, folder.path());
    assert_eq!(
        told[0],
        "msgpack: invalid MessagePack at byte 9: reserved MessagePack byte; the rest cannot be read"
    );
    assert!(
        told[1].starts_with("json: invalid MessagePack at byte 0"),
        "{told:?}"
    );
}

#[test]
fn ids_are_the_same_however_a_file_is_read() {
    let log: String = (0..20_000)
        .map(|n| format!("line {n} {}\n", "x".repeat(n % 300)))
        .collect();
    let folder = folder(&[("log", log.as_bytes()), ("other", log.as_bytes())]);
    let ids = |name: &str, buffer_size| {
        let input = build("file", &format!("paths: {:?}", folder.path().join(name)))
            .expect("valid settings");
        let run = Bench {
            buffer_size,
            ..Bench::default()
        }
        .run(input, events);
        run.batches
            .into_iter()
            .flatten()
            .map(|seen| (seen.id, seen.start, seen.end))
            .collect::<Vec<_>>()
    };
    let first = ids("log", 256 << 10);
    // A failed comparison of the lists themselves would print all of them.
    assert!(
        first == ids("log", 1000),
        "the size of the buffers changes ids"
    );
    assert_ne!(
        first[0].0,
        ids("other", 1000)[0].0,
        "another file with the same content"
    );
    fs::write(folder.path().join("log"), "another start\n").expect("written");
    assert_ne!(
        first[0].0,
        ids("log", 1000)[0].0,
        "another content in the same file"
    );
}

#[test]
fn stopping_ends_a_run_soon() {
    let line = format!("{}\n", "x".repeat(100));
    let folder = folder(&[("log", line.repeat(200_000).as_bytes())]);
    let input =
        build("file", &format!("paths: {:?}", folder.path().join("log"))).expect("valid settings");
    let bench = Bench {
        delay: Duration::from_millis(20),
        ..Bench::default()
    };
    let stop = bench.stop.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(60));
        stop.stop();
    });
    let run = bench.run(input, Batch::len);
    stopper.join().expect("no panic");
    let events: usize = run.batches.iter().sum();
    assert!(events > 0 && events < 100_000, "{events}");
    assert_eq!(run.result, Ok(()));
    assert!(
        run.metrics.snapshot().wait >= Duration::from_millis(40),
        "sending is waiting"
    );
}

#[test]
fn a_file_without_permission_does_not_stop_the_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder(&[("a.log", b"a\n"), ("b.log", b"b\n")]);
    fs::set_permissions(folder.path().join("a.log"), fs::Permissions::from_mode(0o0))
        .expect("changed");
    let run = testkit::rights::without_powers(|| read(folder.path(), &["a.log", "b.log"], ""));
    assert_eq!(messages(&run), ["b"]);
    assert_eq!(problems(&run, folder.path()), ["a.log: permission denied"]);
}
