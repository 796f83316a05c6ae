use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::sampling::v8::reading::{NAME_BYTES_MAX, READS_MAX};

const BASE: u64 = 0x10_0000;
const ONE_BYTE: u16 = 0x28;
const TWO_BYTE: u16 = 0x20;
const CONS: u16 = 0x29;
const EXTERNAL: u16 = 0x2a;
const SLICED: u16 = 0x2b;
const THIN: u16 = 0x2d;
const ODDBALL: u16 = 131;
const SCRIPT: u16 = 167;
const MAP: u16 = 255;
const SCOPE: u16 = 261;
const SHARED: u16 = 262;
const FUNCTION: u16 = 2066;
const CONSTRUCTOR: u16 = 2070;

/// Memory with objects.
#[derive(Default)]
struct Heap {
    words: Vec<u64>,
    maps: HashMap<u16, u64>,
    reads: Cell<usize>,
}

impl Memory for Heap {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.reads.set(self.reads.get() + 1);
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        let bytes: Vec<u8> = self.words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        buffer.copy_from_slice(bytes.get(start..start.checked_add(buffer.len())?)?);
        Some(())
    }
}

fn small(value: u64) -> u64 {
    value << 32
}

impl Heap {
    /// Appends words, and gives a reference to them.
    fn add(&mut self, words: &[u64]) -> u64 {
        let value = BASE + 8 * self.words.len() as u64 + 1;
        self.words.extend(words);
        // Objects are read in pieces of a fixed size.
        self.words.extend([0; 8]);
        value
    }

    fn word(&mut self, value: u64, index: usize) -> &mut u64 {
        let start = usize::try_from((value - 1 - BASE) / 8).unwrap_or(0);
        &mut self.words[start + index]
    }

    fn map(&mut self, kind: u16) -> u64 {
        if let Some(map) = self.maps.get(&kind) {
            return *map;
        }
        let map = self.add(&[0, u64::from(kind) << 32, 0, 0]);
        self.maps.insert(kind, map);
        let of_maps = self.map(MAP);
        *self.word(map, 0) = of_maps;
        map
    }

    fn object(&mut self, kind: u16, words: &[u64]) -> u64 {
        let map = self.map(kind);
        self.add(&[&[map], words].concat())
    }

    fn string_of(&mut self, kind: u16, length: i32, words: &[u64]) -> u64 {
        let length = u64::from(length.cast_unsigned()) << 32;
        self.object(kind, &[&[length], words].concat())
    }

    fn string(&mut self, text: &str) -> u64 {
        let mut bytes: Vec<u8> = text.bytes().collect();
        let length = bytes.len() as i32;
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let (words, _) = bytes.as_chunks();
        let words: Vec<u64> = words.iter().map(|w| u64::from_ne_bytes(*w)).collect();
        self.string_of(ONE_BYTE, length, &words)
    }

    fn wide(&mut self, text: &str) -> u64 {
        let mut units: Vec<u16> = text.encode_utf16().collect();
        let length = units.len() as i32;
        units.resize(units.len().next_multiple_of(4), 0);
        let pack = |units: &[u16; 4]| {
            let units = units.iter().rev();
            units.fold(0, |word, unit| word << 16 | u64::from(*unit))
        };
        let (words, _) = units.as_chunks();
        let words: Vec<u64> = words.iter().map(pack).collect();
        self.string_of(TWO_BYTE, length, &words)
    }

    fn script(&mut self) -> u64 {
        let path = self.string("/a.js");
        let source = self.string("one\ntwo\nfunction f() {}\n");
        self.object(SCRIPT, &[source, path])
    }

    /// A function with what stands for its name.
    fn function(&mut self, name: u64) -> u64 {
        let script = self.script();
        let shared = self.object(SHARED, &[0, name, 0, script]);
        self.object(FUNCTION, &[0, 0, shared])
    }

    /// A list of variables, with what follows them.
    fn scope(&mut self, count: u64, behind: &[u64]) -> u64 {
        let variable = self.string("variable");
        let names = if count < 75 { count } else { 1 };
        let mut words = vec![0, 0, small(count)];
        words.extend((0..names).map(|_| variable));
        words.extend((0..count).map(small));
        words.extend(behind);
        self.object(SCOPE, &words)
    }

    fn name(&self, function: u64) -> Option<String> {
        let layout = Layout::from_constants(&HashMap::from(layout::tests::CONSTANTS))?;
        let (mut types, mut lines) = (HashMap::new(), Lines::default());
        let mut reader = ObjectReader::new(&layout, self, &mut types, &mut lines);
        let shared = reader.shared(function)?;
        reader.name(shared)
    }
}

/// The name of a function whose name is a value of a heap.
fn named(name: impl FnOnce(&mut Heap) -> u64) -> Option<String> {
    let mut heap = Heap::default();
    let name = name(&mut heap);
    let function = heap.function(name);
    let name = heap.name(function);
    assert!(heap.reads.get() <= READS_MAX + 1);
    name
}

#[test]
fn functions_have_their_names_from_strings_and_lists_of_variables() {
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(named(|heap| heap.string("f")), some("f /a.js"));
    assert_eq!(named(|_| small(0)), some("(anonymous) /a.js"));
    for count in [0, 1, 3, 74, 75, 200] {
        let own = named(|heap| {
            let (own, none) = (heap.string("f"), heap.object(ODDBALL, &[]));
            heap.scope(count, &[own, small(0), none, small(18), small(23)])
        });
        assert_eq!(own, some("f /a.js:3:11"), "{count}");
        let made_up = named(|heap| {
            let made_up = heap.string("x.f");
            heap.scope(count, &[small(0), small(0), made_up, small(4)])
        });
        assert_eq!(made_up, some("x.f /a.js:2:1"), "{count}");
        let of_module = named(|heap| heap.scope(count, &[small(0), small(9), small(7)]));
        assert_eq!(of_module, some("(anonymous) /a.js"), "{count}");
    }
    // Beyond the source.
    let far = named(|heap| {
        let own = heap.string("f");
        heap.scope(0, &[own, small(0), own, small(500)])
    });
    assert_eq!(far, some("f /a.js"));
}

#[test]
fn strings_of_all_kinds_are_read() {
    let some = |name: &str| Some(format!("{name} /a.js"));
    assert_eq!(named(|heap| heap.wide("naïve→𝒇")), some("naïve→𝒇"));
    assert_eq!(named(|heap| heap.string("a\nb")), some("a b"));
    let cons = |heap: &mut Heap| {
        let (first, second) = (heap.string("get "), heap.wide("größe"));
        let inner = heap.string_of(CONS, 9, &[first, second]);
        let dot = heap.string(".x");
        heap.string_of(CONS, 11, &[inner, dot])
    };
    assert_eq!(named(cons), some("get größe.x"));
    let sliced = |heap: &mut Heap| {
        let parent = heap.string("function name() {}");
        let sliced = heap.string_of(SLICED, 4, &[parent, small(9)]);
        heap.string_of(THIN, 4, &[sliced])
    };
    assert_eq!(named(sliced), some("name"));
    let external = |heap: &mut Heap| heap.string_of(EXTERNAL, 4, &[0x7000]);
    assert_eq!(named(external), None);
    let long = named(|heap| heap.string(&"é".repeat(400)));
    assert_eq!(long.map(|name| name.len()), Some(NAME_BYTES_MAX + 6));
}

#[test]
fn objects_of_other_types_have_no_name() {
    let mut heap = Heap::default();
    let name = heap.string("f");
    let function = heap.function(name);
    assert_eq!(heap.name(function).as_deref(), Some("f /a.js"));
    let shared = *heap.word(function, 3);
    let script = *heap.word(shared, 4);
    let constructor = heap.map(CONSTRUCTOR);
    *heap.word(function, 0) = constructor;
    assert_eq!(heap.name(function).as_deref(), Some("f /a.js"));
    let other = heap.map(ODDBALL);
    // The garbage collector puts the new address where the map of a moved object was.
    for wrong in [other, 0, small(5), shared, script - 1, BASE + 3, u64::MAX] {
        for object in [function, shared, script, name] {
            let map = std::mem::replace(heap.word(object, 0), wrong);
            let found = heap.name(function);
            // A script without a name of its own has no path.
            assert_eq!(found, None, "{wrong:#x} {object:#x}");
            *heap.word(object, 0) = map;
        }
    }
    for function in [0, 1, 2, function - 1, function + 2, u64::MAX, u64::MAX - 6] {
        assert_eq!(heap.name(function), None, "{function:#x}");
    }
}

#[test]
fn hostile_strings_end() {
    let text = |heap: &mut Heap| heap.string("x");
    for (kind, index) in [(CONS, 2), (CONS, 3), (THIN, 2), (SLICED, 2)] {
        let own = named(|heap| {
            let (x, empty) = (text(heap), heap.string(""));
            let string = heap.string_of(kind, 1, &[empty, x]);
            *heap.word(string, index) = string;
            string
        });
        assert_eq!(own, None, "{kind}");
    }
    for length in [-1, i32::MIN] {
        assert_eq!(named(|heap| heap.string_of(ONE_BYTE, length, &[0])), None);
    }
    // As much as there is room for lies behind it, or memory ends.
    let long = named(|heap| heap.string_of(ONE_BYTE, i32::MAX, &[0; 64]));
    assert_eq!(long.map(|name| name.len()), Some(NAME_BYTES_MAX + 6));
    let mut heap = Heap::default();
    let name = heap.string("f");
    let function = heap.function(name);
    let last = heap.string_of(TWO_BYTE, i32::MAX, &[0]);
    let shared = *heap.word(function, 3);
    *heap.word(shared, 2) = last;
    assert_eq!(heap.name(function), None);
    for (parent, offset) in [(0x9000_0001, 0), (BASE + 1, u64::from(u32::MAX))] {
        let sliced = |heap: &mut Heap| heap.string_of(SLICED, 9, &[parent, small(offset)]);
        assert_eq!(named(sliced), None);
    }
    let beyond = |heap: &mut Heap| {
        let x = text(heap);
        heap.string_of(SLICED, 9, &[x, small(7)])
    };
    assert_eq!(named(beyond), None);
    let variables = |heap: &mut Heap| heap.object(SCOPE, &[0, 0, small(u64::from(u32::MAX))]);
    assert_eq!(named(variables), None);
}

proptest! {
    #[test]
    fn any_memory_ends(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..6_u8, any::<u64>()), 0..12)
    ) {
        let mut heap = Heap::default();
        let (own, none) = (heap.string("f"), heap.wide("g"));
        let cons = heap.string_of(CONS, 2, &[own, none]);
        let scope = heap.scope(2, &[cons, small(0), none, small(3)]);
        let function = heap.function(scope);
        for (index, kind, value) in changes {
            let index = index.index(heap.words.len());
            let count = heap.words.len() as u64;
            heap.words[index] = match kind {
                0 => value,
                1 => small(value),
                2 => value & 0xffff_ffff,
                _ => BASE + 8 * (value % count) + 1,
            };
        }
        heap.reads.set(0);
        if let Some(name) = heap.name(function) {
            prop_assert!(name.len() <= 2 * NAME_BYTES_MAX + 48);
        }
        prop_assert!(heap.reads.get() <= READS_MAX + 1);
    }
}

#[test]
fn frames_say_whose_they_are() {
    let words = [0x2001_u64, 0x1001, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let stack = StackCopy {
        top: 0x4000,
        bytes: &bytes,
    };
    assert_eq!(
        (stack.word(0x4008), stack.word(0x4018)),
        (Some(0x1001), Some(0))
    );
    for address in [0, 0x3fff, 0x4019, 0x4020, u64::MAX] {
        assert_eq!(stack.word(address), None, "{address:#x}");
    }
}

#[test]
fn pages_whose_functions_move_are_not_trusted() {
    let mut pages = Pages::default();
    let (old, young) = (0x10_0001, 0x50_0001);
    assert!(pages.count(old, true) && pages.count(young, true));
    // What was on a stack once in a while was no function.
    assert!((0..100).all(|_| pages.count(old, true)));
    pages.count(old + 8, false);
    assert!(pages.count(old + 16, true));
    pages.count(young + 8, false);
    assert!(!pages.count(young, true));
    assert!(pages.count(young + (1 << 20), true));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn functions_have_no_frame_where_they_are_entered_and_left() {
    let at = |code: &[u8], instruction: usize| {
        let mut all = [0x90; BEFORE + BEHIND];
        let start = BEFORE - instruction;
        all[start..start + code.len()].copy_from_slice(code);
        is_at_edge(&all)
    };
    // push rbp; mov rbp, rsp; push rsi; push rdi; sub rsp, 8
    let enter = [0x55, 0x48, 0x89, 0xe5, 0x56, 0x57, 0x48, 0x83, 0xec, 0x08];
    let edges: Vec<bool> = [0, 1, 4, 5, 6].map(|index| at(&enter, index)).to_vec();
    assert_eq!(edges, [true, true, true, true, false]);
    // mov rsp, rbp; pop rbp; ret 16
    let leave = [0x48, 0x8b, 0xe5, 0x5d, 0xc2, 0x10, 0x00];
    let edges: Vec<bool> = [0, 3, 4].map(|index| at(&leave, index)).to_vec();
    assert_eq!(edges, [false, false, true]);
}
