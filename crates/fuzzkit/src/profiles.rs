//! Profiles of other programs, and what the profiler finds in files and on the machine: tables of programs, maps, names.
//!
//! What is accepted can be written and read again as the same, in the formats that hold all of it. Memory is up to
//! [`FACTOR`] times the input, and [`SMALL`] more.

use std::collections::HashMap;
use std::sync::Arc;

use profiler::filter::Filter;
use profiler::pprof::Scanner;
use profiler::sampling::binaries::Binary;
use profiler::sampling::events::Registers;
use profiler::sampling::unwind::{Code, CodeKind, FRAMES_MAX, Memory};
use profiler::symbols::binary::SymbolFile;
use profiler::symbols::demangle::demangle;
use profiler::symbols::kernel::Kernel;
use profiler::symbols::perf_map::PerfMap;
use profiler::top::{Group, Table, table};
use profiler::{Profile, collapsed, otlp, perf_script, pprof};

use crate::choice;

/// How many times its input a reader may take at once.
const FACTOR: u64 = 400;
/// What a reader may take in any case: tables begin with room for a few, and a library keeps tables of its own.
const SMALL: u64 = 2 << 20;
/// What decompression adds: a small file may have so much content in any case, of which each two bytes can be an element.
const DECOMPRESSED: u64 = 16 << 20;

/// Reads bytes in bounded memory.
fn bounded<T>(bytes: &[u8], more: u64, read: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(read()));
    let limit = bytes.len() as u64 * FACTOR + SMALL + more;
    assert!(
        used.bytes_max <= limit,
        "{} bytes for {}",
        used.bytes_max,
        bytes.len()
    );
    result.expect("it was read")
}

/// What a profile has, in whatever order it came.
fn text(profile: &Profile) -> Vec<String> {
    let mut samples: HashMap<String, (u64, u64)> = HashMap::new();
    for (stack, labels, weight) in profile.samples() {
        let frames = profile
            .frame_ids(stack)
            .map(|frame| profile.frame_of(frame));
        let frames: Vec<_> = frames.collect();
        let labels: Vec<_> = profile.labels_of(labels).collect();
        let sum = samples.entry(format!("{frames:?} {labels:?}")).or_default();
        *sum = (
            sum.0.saturating_add(weight.samples),
            sum.1.saturating_add(weight.cpu_ns),
        );
    }
    let (window, hz, lost) = (profile.window, profile.frequency_hz, profile.lost);
    let samples = samples
        .into_iter()
        .map(|(key, sum)| format!("{key} {sum:?}"));
    let mut text: Vec<_> = samples.chain([format!("{window:?} {hz} {lost}")]).collect();
    text.sort();
    text
}

/// Formats have no words for some oddities; what was written once is the same from then on.
fn written(profile: &Profile) {
    let pprof = |profile: &Profile| pprof::read(&pprof::write(profile)).expect("a pprof file");
    let once = pprof(profile);
    assert_eq!(text(&pprof(&once)), text(&once), "pprof");
    let otlp = |profile: &Profile| {
        let message = otlp::write(profile, "1");
        otlp::read(&message).expect("an OTLP message").profile
    };
    let once = otlp(profile);
    assert_eq!(text(&otlp(&once)), text(&once), "OTLP");
    let lines = collapsed::write(profile, &Filter::default(), None);
    collapsed::read(&lines, 20.0).expect("stacks");
}

/// A file of pprof.
pub(crate) fn pprof(bytes: &[u8]) {
    let is_compressed = bytes.starts_with(&[0x1f, 0x8b]);
    let more = if is_compressed { DECOMPRESSED * 100 } else { 0 };
    if let Ok(profile) = bounded(bytes, more, || pprof::read(bytes)) {
        written(&profile);
        tabled(&profile);
    }
    let everything = Filter::default();
    for group in [Group::Function, Group::Label("process".to_owned())] {
        // What no table is gives an error, or a wrong table.
        let scan = || pprof::scan(bytes, &everything, &group).is_ok();
        let _ = bounded(bytes, more, scan);
        let scan = || {
            Scanner::default()
                .scan_table(bytes, &everything, &group)
                .is_ok()
        };
        let _ = bounded(bytes, more, scan);
    }
}

/// The table of a profile says what the profile says.
fn tabled(profile: &Profile) {
    let everything = Filter::default();
    // Numbers of a file have 63 bits.
    let sum = profile.total();
    if sum.cpu_ns.max(sum.samples) > i64::MAX as u64 {
        return;
    }
    let bytes = pprof::write_table(profile, |_| true);
    let mut scanner = Scanner::default();
    let scanned = scanner.scan_table(&bytes, &everything, &Group::Function);
    let scanned = scanned.expect("a table").table;
    let own = |table: &Table| {
        let rows = table.rows.iter().filter(|row| row.own.samples > 0);
        rows.map(|row| row.own.samples).sum::<u64>()
    };
    let expected = table(profile, &everything, &Group::Function);
    assert_eq!(own(&scanned), own(&expected));
    assert_eq!(scanned.all.cpu_ns, expected.all.cpu_ns);
}

/// A message of OTLP, in protobuf.
pub(crate) fn otlp(bytes: &[u8]) {
    if let Ok(received) = bounded(bytes, 0, || otlp::read(bytes)) {
        written(&received.profile);
    }
}

/// The answer of a collector.
pub(crate) fn otlp_reply(bytes: &[u8]) {
    if let Ok(answer) = bounded(bytes, 0, || otlp::read_response(bytes)) {
        let again = otlp::read_response(&otlp::response(&answer));
        assert_eq!(again.expect("an answer"), answer);
    }
}

/// What `perf script` prints.
pub(crate) fn perf_script(bytes: &[u8]) {
    let Some((choice, text)) = choice(bytes) else {
        return;
    };
    let frequency_hz = (choice > 0).then_some(choice as f64);
    if let Ok(profile) = bounded(text, 0, || perf_script::read(text, frequency_hz)) {
        written(&profile);
    }
}

/// Stacks as lines.
pub(crate) fn collapsed(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(profile) = bounded(bytes, 0, || collapsed::read(text, 20.0)) {
        written(&profile);
        let lines = collapsed::write(&profile, &Filter::default(), None);
        let again = collapsed::read(&lines, 20.0).expect("stacks");
        assert_eq!(again.total().samples, profile.total().samples);
    }
}

/// Addresses where the programs of the corpus have code, and some that are odd.
fn addresses() -> impl Iterator<Item = u64> {
    let near = (0x1000..0x1200).step_by(3);
    near.chain([0, 1, 0xfff, 0x4000, u64::MAX - 1, u64::MAX])
}

/// The names that a file of code has.
pub(crate) fn elf_symbols(bytes: &[u8]) {
    bounded(bytes, 0, || {
        if let Ok(file) = SymbolFile::of(bytes) {
            for address in addresses() {
                for named in file.resolve(address) {
                    assert!(!named.function.is_empty());
                }
            }
        }
    });
}

/// The unwinding tables of a file of code, and stacks through it.
pub(crate) fn elf_tables(bytes: &[u8]) {
    let Some((choice, file)) = choice(bytes) else {
        return;
    };
    // Where memory begins: headers are read where they are only if they are aligned.
    let file = file.to_vec();
    bounded(bytes, 0, || {
        if let Ok(binary) = Binary::of(&*file) {
            unwind(choice as u64, &file, binary);
        }
    });
}

fn unwind(choice: u64, stack: &[u8], binary: Binary) {
    const BASE: u64 = 0x10_0000;
    for address in addresses() {
        binary.address_of(address);
    }
    let binary = Arc::new(binary);
    let mut code = Code::default();
    code.add("a", BASE, BASE + 0x8000, BASE, &binary);
    // What the file holds is as good a stack as any: it has addresses of itself.
    let in_code = |address: u64| {
        (BASE..BASE + 0x8000)
            .contains(&address)
            .then_some(CodeKind::File)
    };
    let anywhere = |_: u64| Some(CodeKind::Made);
    let mut memory = Memory::default();
    for address in (0x1000..0x1200).step_by(5) {
        let (fp, sp) = (BASE + choice * 16, BASE + choice * 8);
        // Others are anywhere on the stack.
        let mut general = std::array::from_fn(|number| sp + number as u64 * 8);
        general[6..8].copy_from_slice(&[fp, sp]);
        let registers = Registers {
            ip: BASE + address,
            sp,
            fp,
            lr: BASE + address,
            general,
        };
        for is_narrow in [true, false] {
            let mut frames = Vec::new();
            match is_narrow {
                true => code.unwind(registers, stack, &mut memory, in_code, &mut frames),
                false => code.unwind(registers, stack, &mut memory, anywhere, &mut frames),
            };
            assert!((1..=FRAMES_MAX).contains(&frames.len()));
        }
    }
    code.remove(BASE);
}

/// The map of compiled code that a program writes: the last line that covers an address has its name, unless a later one took a part
/// of its place.
pub(crate) fn perf_map(bytes: &[u8]) {
    let mut map = PerfMap::default();
    bounded(bytes, 0, || map.add(bytes));
    let mut live: Vec<(u64, u64, String)> = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else {
            continue;
        };
        let line = String::from_utf8_lossy(line);
        let mut fields = line.trim_end_matches('\r').splitn(3, ' ');
        let mut number = || {
            let field = fields.next()?.trim_start_matches("0x");
            u64::from_str_radix(field, 16).ok()
        };
        let (start, length) = (number(), number());
        let (Some(start), Some(length), Some(name)) = (start, length, fields.next()) else {
            continue;
        };
        let end = start.saturating_add(length);
        if start < end {
            live.retain(|(other, other_end, _)| *other_end <= start || end <= *other);
            let name = &name[..name.floor_char_boundary(4096)];
            live.push((start, end, demangle(name)));
        }
    }
    for (start, end, name) in &live {
        assert_eq!(map.name(*start).as_ref(), Some(name));
        assert_eq!(map.name(*end - 1).as_ref(), Some(name));
    }
}

/// The list of the kernel's functions.
pub(crate) fn kallsyms(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(kernel) = bounded(bytes, 0, || Kernel::parse(&text)) else {
        return;
    };
    for line in text.lines() {
        let address = line.split_whitespace().next().unwrap_or_default();
        let address = u64::from_str_radix(address, 16).unwrap_or(0);
        let name = kernel.name(address);
        assert!(name.is_none_or(|name| text.contains(name)));
    }
    kernel.name(u64::MAX);
}

/// The name of a function as its compiler writes it.
pub(crate) fn mangled(bytes: &[u8]) {
    if let Ok(name) = std::str::from_utf8(bytes) {
        let written = bounded(bytes, 0, || demangle(name));
        assert!(written.len() <= name.len().max(64 << 10));
    }
}
