//! Damaged and hostile files of code: every section of a small program is cut, overwritten and overstated, and whatever the result, opening it,
//! resolving addresses and unwinding through it neither panic nor take long or much memory. Needs a C compiler.

mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object::{Object, ObjectSection};
use profiler::sampling::binaries::Binary;
use profiler::sampling::events::Registers;
use profiler::sampling::unwind::{Code, CodeKind, Ending, FRAMES_MAX, Memory};
use profiler::symbols::Symbols;
use profiler::symbols::binary::SymbolFile;

use programs::program;

/// The most bytes that a reader of a file of 4 KiB takes at once.
const MEMORY_MAX: u64 = 8 << 20;
/// How long one damaged file may take, on a machine with much else to do.
const SLOW: Duration = Duration::from_secs(5);

/// Where the program has its code.
const TEXT: u64 = 0x1000;
/// Where it is in the memory of a process.
const BIAS: u64 = 0x10_0000;

fn compile(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let source = program(source);
    let out = folder.join("out");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-o"]).arg(&out).arg(source).args(flags);
    assert!(cc.status().expect("a C compiler").success());
    out
}

fn small(flags: &[&str]) -> Vec<u8> {
    const PLAIN: [&str; 8] = [
        "-nostdlib",
        "-static",
        "-Wl,-N",
        "-Wl,-Ttext=0x1000",
        "-Wl,--build-id",
        "-Wl,--no-warn-rwx-segments",
        "-fno-stack-protector",
        "-fcf-protection=none",
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let flags = [&PLAIN[..], flags].concat();
    std::fs::read(compile(folder.path(), "small.c", &flags)).expect("a program")
}

/// Where a section and its header are in a file.
#[derive(Debug, Clone)]
struct Range {
    name: String,
    header: usize,
    start: usize,
    end: usize,
}

fn sections(bytes: &[u8]) -> Vec<Range> {
    let file = object::File::parse(bytes).expect("a program");
    let headers = usize::try_from(u64::from_le_bytes(
        bytes[40..48].try_into().expect("8 bytes"),
    ))
    .expect("an offset");
    let ranges = file.sections().filter_map(|section| {
        let (start, length) = section.file_range()?;
        let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
        Some(Range {
            name: section.name().ok()?.to_owned(),
            header: headers + section.index().0 * 64,
            start,
            end: start + length,
        })
    });
    ranges.collect()
}

/// The file in many damaged forms, by what was done to it.
fn damaged(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    let mut number = 1_u64;
    let mut random = || {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(number >> 33).expect("31 bits")
    };
    for section in sections(bytes) {
        let mut add = |what: &str, damage: &mut dyn FnMut(&mut Vec<u8>)| {
            let mut bytes = bytes.to_vec();
            damage(&mut bytes);
            all.push((format!("{} {what}", section.name), bytes));
        };
        let length = (section.end - section.start) as u64;
        // Offset and length in the section's header.
        for (field, name) in [(24, "offset"), (32, "length")] {
            for value in [
                0,
                1,
                length / 2,
                length * 1000,
                1 << 40,
                u64::MAX - 8,
                u64::MAX,
            ] {
                add(&format!("{name} {value}"), &mut |bytes| {
                    let at = section.header + field;
                    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
                });
            }
        }
        for fill in [0, 1, b'A', 0x80, 0xff] {
            add(&format!("filled with {fill}"), &mut |bytes| {
                bytes[section.start..section.end].fill(fill);
            });
        }
        add("cut", &mut |bytes| {
            bytes.drain(section.start..(section.start + section.end) / 2);
        });
        add("the end", &mut |bytes| bytes.truncate(section.end - 1));
        for round in 0..60 {
            add(&format!("flipped {round}"), &mut |bytes| {
                for _ in 0..=round % 4 {
                    let at = section.start + random() % (section.end - section.start).max(1);
                    let value = u8::try_from(random() % 256).expect("a byte");
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = if round % 2 == 0 {
                            value
                        } else {
                            *byte ^ (1 << (value % 8))
                        };
                    }
                }
            });
        }
    }
    all
}

fn resolve(bytes: &[u8]) -> usize {
    let Ok(file) = SymbolFile::of(bytes) else {
        return 0;
    };
    let near = (TEXT - 16..TEXT + 256).chain([0, 1, u64::MAX - 1, u64::MAX]);
    near.map(|address| file.resolve(address).len()).sum()
}

/// Unwinds from many places of the code, with a stack that has addresses of it; how many frames there were.
fn unwind(bytes: &[u8]) -> usize {
    let Ok(binary) = Binary::of(bytes) else {
        return 0;
    };
    let binary = Arc::new(binary);
    let range = BIAS + TEXT..BIAS + TEXT + 0x1000;
    let mut code = Code::default();
    code.add("small", range.start, range.end, BIAS, &binary);
    let stack: Vec<u8> = (0..2048_u64)
        .flat_map(|word| {
            let word = match word % 3 {
                0 => range.start + word % 128,
                _ => range.start + 0x2000 + word * 8,
            };
            word.to_ne_bytes()
        })
        .collect();
    let (mut memory, mut count) = (Memory::default(), 0);
    for offset in (0..128).step_by(3) {
        let registers = Registers {
            ip: range.start + offset,
            sp: range.start + 0x2000,
            fp: range.start + 0x2010,
            lr: range.start + 5,
            ..Registers::default()
        };
        let mut frames = Vec::new();
        let place = |address: u64| range.contains(&address).then_some(CodeKind::File);
        code.unwind(registers, &stack, &mut memory, place, &mut frames);
        assert!((1..=FRAMES_MAX).contains(&frames.len()));
        count += frames.len();
    }
    count
}

fn check(what: &str, read: impl FnOnce()) {
    let start = Instant::now();
    let used = allocation_counter::measure(read).bytes_max;
    assert!(used <= MEMORY_MAX, "{what}: {used} bytes");
    assert!(start.elapsed() < SLOW, "{what}: {:?}", start.elapsed());
}

#[test]
fn damaged_sections_neither_panic_nor_take_much() {
    for flags in [
        &["-g", "-gdwarf-5"][..],
        &["-g", "-gdwarf-4", "-gz=zlib"],
        &["-Wl,--eh-frame-hdr", "-fomit-frame-pointer"],
        &["-g", "-fno-asynchronous-unwind-tables"],
    ] {
        let whole = small(flags);
        assert!(resolve(&whole) > 50 && unwind(&whole) > 43, "{flags:?}");
        let all = damaged(&whole);
        assert!(all.len() > 500);
        for (what, bytes) in all {
            check(&format!("{flags:?}: {what}"), || {
                resolve(&bytes);
                unwind(&bytes);
            });
        }
    }
}

#[test]
fn files_that_end_early_neither_panic_nor_take_much() {
    let whole = small(&["-g", "-Wl,--eh-frame-hdr"]);
    for length in (0..whole.len()).step_by(7) {
        check(&format!("the first {length} bytes"), || {
            resolve(&whole[..length]);
            unwind(&whole[..length]);
        });
    }
}

#[test]
fn functions_that_nest_without_end_do_not_end_the_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = compile(folder.path(), "nested.s", &["-c"]);
    let bytes = std::fs::read(&path).expect("an object");
    let found = SymbolFile::of(&bytes).expect("an object").resolve(5);
    // The table of symbols has the name.
    assert_eq!(found.len(), 1);
    assert_eq!((&*found[0].function, found[0].line), ("work", 0));
    assert_eq!(Symbols::new().resolve(&path, "", 5), found);
}

#[test]
fn tables_that_loop_are_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["-nostdlib", "-static", "-Wl,-Ttext=0x1000", "-Wl,-e,work"];
    let path = compile(folder.path(), "endless.s", &flags);
    let binary = Arc::new(Binary::read(&path).expect("a program"));
    assert!(binary.sections(&(0..u64::MAX)).eh_frame.is_none());
    let mut code = Code::default();
    code.add("endless", BIAS + TEXT, BIAS + TEXT + 256, BIAS, &binary);
    let registers = Registers {
        ip: BIAS + TEXT + 9,
        sp: 0x1000,
        fp: 0x1000,
        ..Registers::default()
    };
    let mut frames = Vec::new();
    let ending = code.unwind(
        registers,
        &[0; 64],
        &mut Memory::default(),
        |_| Some(CodeKind::File),
        &mut frames,
    );
    assert_eq!((frames.len(), ending), (1, Ending::Whole));
}

#[test]
fn functions_that_bolt_has_left_have_tables() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = compile(
        folder.path(),
        "small.c",
        &["-nostdlib", "-static", "-Wl,-Ttext=0x1000"],
    );
    let text = TEXT..TEXT + 0x1000;
    let plain = Binary::read(&path).expect("a program").sections(&text);
    assert!(plain.eh_frame.is_some());
    let mut rename = Command::new("objcopy");
    for name in [".text", ".eh_frame", ".eh_frame_hdr"] {
        let renamed = format!("{name}=.bolt.org{name}");
        rename.arg("--rename-section").arg(renamed);
    }
    assert!(rename.arg(&path).status().expect("objcopy").success());
    let binary = Binary::read(&path).expect("a program");
    assert_eq!(binary.sections(&text).eh_frame, plain.eh_frame);
    assert!(binary.sections(&(0x10_0000..0x20_0000)).eh_frame.is_none());
}
