//! Tests of texts of `perf script`.

use proptest::prelude::*;

use super::*;

fn lines(profile: &Profile) -> Vec<String> {
    let line = |(stack, labels, weight): (_, _, Weight)| {
        let mut frames: Vec<String> = profile
            .frame_ids(stack)
            .map(|id| {
                let frame = profile.frame_of(id);
                let mark = if frame.is_inlined { "!" } else { "" };
                let line = match frame.line {
                    0 => String::new(),
                    line => format!("@{}:{line}", frame.file),
                };
                format!("{}{mark}|{}{line}", frame.name(), frame.binary)
            })
            .collect();
        frames.reverse();
        let labels: Vec<_> = profile
            .labels_of(labels)
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        format!(
            "{} {} {}",
            frames.join(";"),
            labels.join(","),
            weight.samples
        )
    };
    profile.samples().map(line).collect()
}

/// What perf 6.1 printed on a real machine.
#[test]
fn real_output_is_read() {
    let text = include_bytes!("../../tests/data/perf-script.txt");
    let profile = read(text, None).unwrap();
    assert_eq!(profile.frequency_hz, 49.0);
    let total = profile.total();
    assert_eq!(total.samples, 12);
    assert_eq!(total.cpu_ns, 12 * 20_408_163);
    let frames: Vec<_> = profile.frames().map(|(_, frame)| frame).collect();
    let binary_of = |function: &str| {
        let frame = frames.iter().find(|frame| frame.function == function);
        frame.map(|frame| (&*frame.binary, frame.is_inlined))
    };
    assert_eq!(binary_of("do_syscall_64"), Some(("[kernel]", false)));
    let zlib = "/usr/lib/python3.11/lib-dynload/zlib.so";
    assert_eq!(binary_of("zlib_compress"), Some((zlib, false)));
    assert_eq!(binary_of("zlib_compress_impl"), Some((zlib, true)));
    let libz = frames.iter().find(|frame| frame.address == 0x6067);
    assert_eq!(libz.unwrap().name(), "libz.so.1.2.13+0x6067");
    assert!(frames.iter().all(|frame| !frame.function.contains("+0x")));
    let mut labels: Vec<_> = profile
        .label_sets()
        .map(|labels| profile.labels_of(labels).collect::<Vec<_>>())
        .collect();
    labels.sort();
    assert_eq!(
        labels,
        [
            [
                ("pid", "26817"),
                ("process", "python3"),
                ("thread", "python3")
            ],
            [
                ("pid", "26817"),
                ("process", "python3"),
                ("thread", "worker")
            ],
        ]
    );
}

#[test]
fn samples_have_labels() {
    let text = "my app 7/8 [001] 5.5: 10 cycles:u: \n\t1 a (/b)\n\n\
        main 7/7 5.6: 10 cycles:P:\n\t1 a (/b)\n\n\
        sh 9 5.75: cpu_core/cycles/: \n\t1 a (/b)\n\n\
        sh 9 5.75: 3 faults: \n\t1 fault (/b)\n\n";
    let profile = read(text.as_bytes(), Some(4.0)).unwrap();
    assert_eq!(
        lines(&profile),
        [
            "a|/b pid=7,process=main,thread=my app 1",
            "a|/b pid=7,process=main,thread=main 1",
            "a|/b pid=9,process=sh,thread=sh 1",
        ]
    );
    assert_eq!(profile.total().cpu_ns, 750_000_000);
    assert_eq!(profile.window.duration_ns, 500_000_000);
    let error = read(text.as_bytes(), None).unwrap_err();
    assert_eq!(error, PerfScriptError::Frequency("cycles".to_owned()));
}

#[test]
fn frames_have_binaries() {
    for (line, expected) in [
        ("7f main+0x12 (/usr/bin/a)", "main|/usr/bin/a"),
        ("7f main (/usr/bin/a (deleted))", "main|/usr/bin/a"),
        (
            "7f f(int, char (*)(int))+0x1 (/a (x)/b)",
            "f(int, char (*)(int))|/a (x)/b",
        ),
        ("7f operator+ (/b)", "operator+|/b"),
        ("7f [unknown] (/usr/bin/a)", "a+0x7f|/usr/bin/a"),
        ("7f [unknown] ([unknown])", "[unknown] 0x7f|"),
        ("7f [unknown] ([heap])", "[unknown] 0x7f|"),
        ("7f f ([vdso])", "f|[vdso]"),
        ("7f Lfoo;::bar+0x1 (/tmp/perf-12.map)", "Lfoo;::bar|[jit]"),
        ("7f f (/tmp/perf-x.map)", "f|/tmp/perf-x.map"),
        ("7f f (/tmp/jitted-12-3.so)", "f|[jit]"),
        ("7f f ([guest.kernel.kallsyms])", "f|[kernel]"),
        ("ffffffffc0001000 f ([nf_tables])", "f|[kernel]"),
        ("ffffffffc0001000 f (bpf_prog_12_x)", "f|[kernel]"),
        ("7f f (/lib/modules/6.1/net/x.ko.xz)", "f|[kernel]"),
        ("ffffffffff600000 f ([vsyscall])", "f|[vsyscall]"),
        ("7f f", "f|"),
        (
            "7f in+0x1 (inlined)\n 7f f+0x1 (/b)\n  b.c:12",
            "f|/b@b.c:12;in!|/b",
        ),
        ("7f f+0x1 (/b)\n  b[7f]", "f|/b"),
        ("7f f+0x1 (/b)\n  ??:0", "f|/b"),
    ] {
        let text = format!("a 1/1 1.0: 5 cpu-clock:\n\t{line}\n");
        let profile = read(text.as_bytes(), None).unwrap();
        let read = lines(&profile);
        let frames = read[0].strip_suffix(" pid=1,process=a,thread=a 1");
        assert_eq!(frames, Some(expected), "{line}");
    }
}

#[test]
fn stacks_of_one_frame_stand_on_the_line() {
    let text = "sh 12 [000] 5.5:  10101010 cpu-clock:ppp:  ffffffff81b6ccb0 iter+0x80 ([kernel.kallsyms])\n";
    let profile = read(text.repeat(2).as_bytes(), None).unwrap();
    assert_eq!(
        lines(&profile),
        ["iter|[kernel] pid=12,process=sh,thread=sh 2"]
    );
    assert_eq!(profile.frequency_hz, 99.0);
}

#[test]
fn waiting_processors_use_no_time() {
    let sample = |function: &str| {
        format!(
            "swapper 0 [001] 1.0: 5 cpu-clock:\n ffffffff81b6ccb0 {function}+0x1 ([kernel.kallsyms])\n\n"
        )
    };
    let text = sample("pv_native_safe_halt") + &sample("net_rx_action");
    let profile = read(text.as_bytes(), None).unwrap();
    assert_eq!(
        lines(&profile),
        ["net_rx_action|[kernel] pid=0,process=swapper,thread=swapper 1"]
    );
}

#[test]
fn malformed_text_is_named() {
    let head = "# captured on x\na 1/1 1.0: 5 cpu-clock:";
    for (text, expected) in [
        ("x".to_owned(), PerfScriptError::Sample { line: 1 }),
        (
            "\n\nmain;a 12".to_owned(),
            PerfScriptError::Sample { line: 3 },
        ),
        (
            "\t7f main (/a)".to_owned(),
            PerfScriptError::Sample { line: 1 },
        ),
        (
            format!("{head}\n\tmain (/a)"),
            PerfScriptError::Frame { line: 3 },
        ),
        (format!("{head}\n\tx:y"), PerfScriptError::Frame { line: 3 }),
        (format!("{head}\nmain"), PerfScriptError::Sample { line: 3 }),
        (
            "a 1/1 1.0: cpu-clock:\n".to_owned(),
            PerfScriptError::Frequency("cpu-clock".to_owned()),
        ),
    ] {
        assert_eq!(read(text.as_bytes(), None).unwrap_err(), expected, "{text}");
    }
    assert!(read(b"", None).unwrap().is_empty());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[a \t\n0-9.:/()\\[\\]+x]{0,200}", hz in proptest::option::of(any::<f64>())) {
        let _ = read(text.as_bytes(), hz);
    }

    #[test]
    fn damaged_text_is_read_or_refused(at in any::<usize>(), byte in any::<u8>()) {
        let mut text = include_bytes!("../../tests/data/perf-script.txt").to_vec();
        let length = text.len();
        text[at % length] = byte;
        let _ = read(&text, None);
    }
}

#[test]
fn a_thread_that_has_ended_has_a_period_too() {
    let text = b":-1    -1 [001] 28378.474914:   10101010 cpu-clock:ppp: \n\tffff a+0x1 ([kernel.kallsyms])\n\n";
    let profile = read(text, None).unwrap();
    assert_eq!(profile.total().cpu_ns, 10_101_010);
    let set = profile.label_sets().next().unwrap();
    assert_eq!(profile.label_of(set, label::PID), Some("-1"));
}
