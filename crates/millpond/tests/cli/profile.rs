//! `millpond profile`: recording needs the right to sample, which the gate has.

use std::fs;
use std::time::Duration;

use profiler::Profile;
use profiler::profile::{Frame, Weight, Window};
use rustix::process::Signal;
use serde_json::Value;
use testkit::s3::{self, S3};

use crate::program::{Folder, command, ended, millpond};
use crate::running::{Busy, Service, cpu_time};

/// Records a busy process until it has used so much processor time, however long that takes; what is said, and how much it used in all.
fn record(folder: &Folder, busy: &Busy, cpu: Duration, file: &str) -> (String, Duration) {
    let before = cpu_time(busy.pid());
    let pid = busy.pid().to_string();
    let words = ["profile", "record", "--pid", &pid, "--duration", "1h"];
    let words = [&words[..], &["--frequency", "99", "-o", file]].concat();
    let mut recording = Service::start(folder, &words);
    let descriptors = format!("/proc/{}/fd", recording.id());
    recording.until("events of the kernel", || samples(&descriptors));
    let begun = cpu_time(busy.pid());
    recording.until("samples", || cpu_time(busy.pid()) >= begun + cpu);
    recording.signal(Signal::INT);
    let said = recording.until_ended(0);
    (said, cpu_time(busy.pid()) - before)
}

/// Whether a process with these file descriptors has events of the kernel.
fn samples(descriptors: &str) -> bool {
    let files = fs::read_dir(descriptors).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| target.to_string_lossy().contains("perf_event"))
}

#[test]
fn what_is_recorded_is_shown() {
    let folder = Folder::new();
    let file = folder.path("busy.pb.gz");
    let busy = Busy::new();
    let pid = busy.pid().to_string();
    let (said, used) = record(&folder, &busy, Duration::from_secs(1), &file);
    let rows = |words: &[&str]| -> Vec<Value> {
        let ended = millpond(&[&["profile", "top", &file, "--json"], words].concat());
        let lines = ended.expect(0).out;
        lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    };
    let processes = rows(&["--by", "pid"]);
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert_eq!(processes[0]["name"], *pid);
    let samples = processes[0]["self"]["samples"].as_u64().expect("a number");
    assert!(said.contains(&format!("{samples} samples in ")), "{said}");
    // Sampling begins a while after its events are there.
    let most = (used.as_secs_f64() * 99.0 * 1.2) as u64;
    assert!((20..=most).contains(&samples), "{samples} in {used:?}");
    let functions = rows(&["-n", "5"]);
    assert_eq!(functions.len(), 5);
    assert!(
        functions
            .iter()
            .all(|row| row["total"]["share"].as_f64() > Some(0.0))
    );
    assert_eq!(rows(&["--filter", "pid=1"]), [] as [Value; 0]);
    let text = millpond(&["profile", "top", &file]).expect(0).out;
    assert!(
        text.contains("USD/year") && text.contains(" at 99 Hz in "),
        "{text}"
    );
}

#[test]
fn collapsed_stacks_are_written_and_read() {
    let folder = Folder::new();
    let file = folder.path("stacks.folded");
    fs::write(&file, "main;work 30\nmain;wait 10\n").expect("written");
    let text = millpond(&["profile", "top", &file, "--total"])
        .expect(0)
        .out;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("40 samples at 20 Hz"), "{text}");
    assert!(
        lines[3].contains("100.00%") && lines[3].ends_with("main"),
        "{text}"
    );
    assert!(
        lines[4].contains("75.00%") && lines[4].ends_with("work"),
        "{text}"
    );
}

#[test]
fn known_kinds_of_functions_have_advice() {
    let folder = Folder::new();
    let file = folder.path("stacks.folded");
    fs::write(&file, "main;inflate_fast 30\nmain;malloc;_int_malloc 10\n").expect("written");
    let text = millpond(&["profile", "top", &file]).expect(0).out;
    assert!(
        text.contains("75.0 % ") && text.contains("inflate_fast\n"),
        "{text}"
    );
    assert!(
        text.contains("25.0 % ") && text.contains("https://"),
        "{text}"
    );
}

#[test]
fn flame_graphs_are_pages_and_pictures() {
    let folder = Folder::new();
    let file = folder.path("stacks.folded");
    fs::write(&file, "main;<work> 30\nmain;wait 10\n").expect("written");
    for (name, begin, part) in [
        ("a.html", "<!doctype html>", "\\u003cwork>"),
        ("a.svg", "<svg ", "&lt;work&gt; — 1.50 s, 75.00 %"),
    ] {
        let out = folder.path(name);
        millpond(&["profile", "flame", &file, "-o", &out]).expect(0);
        let text = fs::read_to_string(&out).expect("written");
        assert!(text.starts_with(begin) && text.contains(part), "{text}");
    }
}

#[test]
fn two_profiles_are_compared() {
    let folder = Folder::new();
    let (before, after) = (folder.path("before.folded"), folder.path("after.folded"));
    fs::write(&before, "main;inflate 30\nmain;read 10\n").expect("written");
    fs::write(&after, "main;inflate 10\nmain;read 10\n").expect("written");
    let diff = |words: &[&str]| millpond(&[&["profile", "diff", &before, &after], words].concat());
    let page = folder.path("diff.html");
    let events = [
        "--normalise",
        "events",
        "--events",
        "100",
        "100",
        "-o",
        &page,
    ];
    let text = diff(&events).expect(0).out;
    assert!(
        text.starts_with("processor time 2.00 s before, 1.00 s after (-50.0 %)"),
        "{text}"
    );
    assert!(
        text.contains("1.50 s      0.50 s     -1.00 s  -50.00%  inflate"),
        "{text}"
    );
    assert!(fs::read_to_string(&page).expect("written").contains("less"));
    let text = diff(&["--normalise", "samples"]).expect(0).out;
    assert!(text.contains("0.25 s      0.50 s"), "{text}");
    for (words, reason) in [
        (&[][..], "does not say how long it was recorded"),
        (&["--normalise", "events"], "needs --events"),
        (&["--events", "1", "2"], "--events is for"),
        (&["--normalise", "samples", "-o", "x.svg"], "ends in .html"),
    ] {
        let ended = diff(words).expect(2);
        assert!(ended.err.contains(reason), "{words:?}: {}", ended.err);
    }
}

/// A store of two hosts with a minute each, as processes `web` and `db`.
fn store_of_two(folder: &Folder) -> String {
    let mut text = String::new();
    for (process, pid, function, samples) in [
        ("web", 1, "inflate", 3),
        ("web", 1, "read", 1),
        ("db", 2, "read", 2),
    ] {
        for _ in 0..samples {
            text += &format!(
                "{process} {pid}/{pid} 1.0: 50000000 cpu-clock:\n\t1 {function} (/bin/a)\n\t2 main (/bin/a)\n\n"
            );
        }
    }
    let file = folder.write("perf.txt", text);
    let store = folder.path("store");
    for host in ["one", "two"] {
        let host_folder = format!("{store}/{host}");
        fs::create_dir_all(&host_folder).expect("made");
        let slice = format!("{host_folder}/20261124T131500.000Z+60s.pb.gz");
        millpond(&["profile", "symbolize", &file, "-o", &slice]).expect(0);
    }
    store
}

#[test]
fn a_bucket_is_read_as_a_store() {
    let folder = Folder::new();
    let store = store_of_two(&folder);
    let s3 = S3::new("lake");
    let server = s3.failing(1000);
    for host in ["one", "two"] {
        let name = format!("{host}/20261124T131500.000Z+60s.pb.gz");
        let content = fs::read(format!("{store}/{name}")).expect("a profile");
        s3.put(&format!("logs/{name}"), content);
    }
    s3.put(
        "logs/one/20261125T131500.000Z+60s.pb.gz",
        "not of that time",
    );
    let top = |words: &[&str]| {
        let words = [&["profile", "top", "--json", "--by", "process"], words].concat();
        let mut command = command(&words);
        command
            .env("AWS_ENDPOINT_URL", server.url())
            .env("AWS_ACCESS_KEY_ID", s3::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", s3::SECRET_KEY);
        ended(command.output().expect("it runs"))
    };
    let of_folder = top(&[&store]).expect(0).out;
    assert_eq!(of_folder.lines().count(), 2, "{of_folder}");
    let range = ["--until", "2026-11-24T14:00"];
    let of_bucket = top(&[&["s3://lake/logs"][..], &range].concat()).expect(0);
    assert_eq!(of_bucket.out, of_folder);
    for (url, said) in [
        ("s3://lake/none", "s3://lake/none holds no profiles"),
        ("s3://other/logs", "The specified bucket does not exist"),
        ("ftp://lake", "not the scheme of a known store"),
    ] {
        let ended = top(&[url]).expect(2);
        assert!(ended.err.contains(said), "{}", ended.err);
    }
}

#[test]
fn parts_of_a_store_are_compared_and_drawn() {
    let folder = Folder::new();
    let store = store_of_two(&folder);
    let page = folder.path("diff.html");
    let sides = ["--before", "process=web", "--after", "process=db"];
    let words = [
        &["profile", "diff", &store][..],
        &sides,
        &["--normalise", "samples", "-o", &page],
    ];
    let text = millpond(&words.concat()).expect(0).out;
    // Six samples of eight, which stand for four.
    assert!(
        text.contains("0.15 s      0.00 s     -0.15 s  -75.00%  inflate"),
        "{text}"
    );
    let text = fs::read_to_string(&page).expect("written");
    assert!(
        text.contains("inflate") && !text.contains("[small]"),
        "{text}"
    );
    for (function, is_there) in [("INFLATE", true), ("nothing", false)] {
        let picture = folder.path("a.svg");
        let words = [
            "profile",
            "flame",
            &store,
            "--function",
            function,
            "-o",
            &picture,
        ];
        millpond(&words).expect(0);
        let text = fs::read_to_string(&picture).expect("written");
        assert_eq!(
            text.contains("inflate — 0.30 s, 100.00 %"),
            is_there,
            "{text}"
        );
        assert!(!text.contains("read"), "{text}");
    }
    let words = [
        &["profile", "diff", &store][..],
        &sides,
        &["--filter", "process=w*"],
    ];
    let ended = millpond(&words.concat()).expect(2);
    let reason = "`process` is given with both --filter and --before: leave it out of one";
    assert!(ended.err.contains(reason), "{}", ended.err);
}

#[test]
fn lost_samples_are_a_warning() {
    let folder = Folder::new();
    let mut profile = Profile::new(Window::default(), 20.0);
    let stack = profile.stack([Frame::function("work", "a")]);
    let labels = profile.labels(&[]);
    let weight = Weight {
        samples: 3000,
        cpu_ns: 150_000_000_000,
    };
    profile.add(stack, labels, weight);
    let few = folder.write("few.pb.gz", profiler::pprof::write(&profile));
    profile.lost = 1000;
    let many = folder.write("many.pb.gz", profiler::pprof::write(&profile));
    let picture = folder.path("a.svg");
    let warning = "1,000 of 4,000 samples were lost: times are too low by 25.0 %";
    for words in [
        &["top", &many][..],
        &["flame", &many, "-o", &picture],
        &["diff", &few, &many, "--normalise", "samples"],
    ] {
        let err = millpond(&[&["profile"], words].concat()).expect(0).err;
        assert_eq!(err.matches(warning).count(), 1, "{err}");
    }
    let err = millpond(&["profile", "top", &few]).expect(0).err;
    assert!(!err.contains("lost"), "{err}");
}

#[test]
fn standard_input_is_read_once() {
    let folder = Folder::new();
    let file = folder.write("stacks.folded", "main;inflate_fast 3\nmain;read 1\n");
    let mut top = command(&["profile", "top", "-"]);
    top.stdin(fs::File::open(file).expect("there"));
    let text = ended(top.output().expect("it runs")).expect(0).out;
    // Both the table and the advice are of it.
    assert!(
        text.contains("75.00%") && text.contains("75.0 % "),
        "{text}"
    );
}

#[test]
fn formats_are_written_and_read() {
    let folder = Folder::new();
    let busy = Busy::new();
    for name in ["a.pb.gz", "a.otlp", "a.folded", "a.json.gz"] {
        let file = folder.path(name);
        record(&folder, &busy, Duration::from_millis(100), &file);
        assert!(fs::metadata(&file).expect("written").len() > 50, "{name}");
        if name != "a.json.gz" {
            let text = millpond(&["profile", "top", &file]).expect(0).out;
            assert!(
                text.lines().count() > 3
                    && text.contains("(sh)") | text.contains("sh+0x") | name.ends_with("folded"),
                "{name}: {text}"
            );
        }
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = Folder::new();
    let (text, bytes) = (folder.path("a.txt"), folder.path("a.pb"));
    fs::write(&text, "no stack").expect("written");
    fs::write(&bytes, [0x1f, 0x8b, 0, 1]).expect("written");
    let empty = folder.write("empty.pb.gz", "");
    let junk = folder.write("junk.pb", [0x0c, 0xff]);
    let stacks = folder.write("a.folded", "main;work 3\n");
    let rates = folder.write("rates.yaml", "profile: { rats: { pue: 1.2 } }\n");
    for (words, reason) in [
        (&["top", &*text][..], "line 1 is not a stack"),
        (&["top", &bytes], "cannot be decompressed"),
        (&["top", &junk], "(expected LengthDelimited)\n"),
        (&["top", "/nowhere"], "No such file"),
        (&["top", &text, "--by", "proces"], "did you mean `process`?"),
        (&["top", &text, "--filter", "x"], "write name=value"),
        (
            &["top", &text, "--pue=0.9"],
            "--pue is 0.9: a number from 1 on is needed",
        ),
        (
            &["top", &text, "--rates", &rates],
            "unknown setting `rats` for profile",
        ),
        (&["top", &empty], "it is empty"),
        (&["record", "-o", "/nowhere/a"], "cannot write /nowhere/a"),
        (
            &["record", "--pid", "4000000000", "-o", &bytes],
            "there is no process 4000000000",
        ),
    ] {
        let ended = millpond(&[&["profile"], words].concat()).expect(2);
        assert!(ended.err.contains(reason), "{words:?}: {}", ended.err);
    }
    let ended = millpond(&["profile", "top", &stacks, "--filter", "process=b", "--json"]).expect(0);
    assert_eq!(ended.out, "");
    assert!(ended.err.starts_with("no sample fits"), "{}", ended.err);
    let words = [
        "--before",
        "2026-11-24..2026-11-24T13:15:30",
        "--after",
        "2026-11-24T13:15:30..2026-11-25",
    ];
    let store = store_of_two(&folder);
    let ended = millpond(&[&["profile", "diff", &store][..], &words].concat()).expect(0);
    assert!(
        ended
            .err
            .starts_with("warning: both ranges have a part of 2 files of the store"),
        "{}",
        ended.err
    );
    let damaged = format!("{store}/one/20261124T141500.000Z+60s.pb.gz");
    fs::write(&damaged, "no profile").expect("written");
    let ended = millpond(&["profile", "top", &store]).expect(0);
    assert!(ended.out.starts_with("12 samples"), "{}", ended.out);
    assert!(
        ended
            .err
            .starts_with(&format!("left out: cannot read {damaged}: ")),
        "{}",
        ended.err
    );
}

#[test]
fn files_get_their_names_when_they_are_whole() {
    let folder = Folder::new();
    let stacks = folder.write("a.folded", "main;work 3\n");
    let page = folder.path("a.html");
    millpond(&["profile", "flame", &stacks, "-o", &page]).expect(0);
    let profile = folder.path("a.pb.gz");
    millpond(&["profile", "symbolize", &stacks, "-o", &profile]).expect(0);
    let mut names: Vec<String> = fs::read_dir(folder.path("."))
        .expect("read")
        .map(|entry| {
            entry
                .expect("read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    assert_eq!(names, ["a.folded", "a.html", "a.pb.gz"]);
    // A device stays what it is.
    let ended = millpond(&["profile", "flame", &stacks, "-o", "/dev/full"]).expect(2);
    assert!(
        ended.err.contains("cannot write /dev/full: No space left"),
        "{}",
        ended.err
    );
    millpond(&["profile", "flame", &stacks, "-o", "/dev/null"]).expect(0);
}
