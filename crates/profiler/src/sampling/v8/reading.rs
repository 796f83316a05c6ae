//! The name of a function of V8, from the memory of its process.
//!
//! A function refers to what its closures share, that to its name (or to a list of its variables that has the name) and to its script, which has a name too.
//! The process goes on while its memory is read, and the garbage collector moves objects. So each object's type is looked at before anything else of
//! it, and one that is not of the type that belongs there ends the reading without a name.
//!
//! Source: `src/objects/scope-info.tq`, `string.tq` and `shared-function-info.tq` of V8, versions 10.2 to 13.6.
//!
//! # Limits
//! Names and paths are cut behind [`NAME_BYTES_MAX`]; a name reads at most [`READS_MAX`] pieces of memory. Strings that V8 does not hold
//! itself have no text.

use std::cell::Cell;
use std::collections::HashMap;

use super::layout::Layout;
use super::lines::{Lines, SOURCE_BYTES_MAX, Starts};

/// The most bytes of a name, and of a path.
pub const NAME_BYTES_MAX: usize = 256;
/// The most reads for one name.
pub const READS_MAX: usize = 128;
/// A list of so many variables has their names in a table of its own.
const INLINE_NAMES: u64 = 75;
/// How much of a source is read at once.
const SOURCE_PART_BYTES: usize = 64 << 10;
/// The most variables of a function.
const VARIABLES_MAX: u64 = 1 << 16;

/// Memory of a process.
pub trait Memory {
    /// Fills a buffer with what is at an address; none where that cannot be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()>;
}

/// Reads objects.
pub struct ObjectReader<'a, M> {
    layout: &'a Layout,
    memory: &'a M,
    /// The types of objects, by their maps.
    types: &'a mut HashMap<u64, Option<u16>>,
    lines: &'a mut Lines,
    reads: Cell<usize>,
}

/// A name, and where the function begins in its source.
type NameAndStart = (String, Option<u64>);

/// The beginning of an object.
struct Head<const N: usize> {
    address: u64,
    kind: u16,
    bytes: [u8; N],
}

impl<const N: usize> Head<N> {
    fn word(&self, offset: usize) -> Option<u64> {
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// The address of an object that a value refers to; none for a small integer, a weak reference, and what is no value.
fn object(value: u64) -> Option<u64> {
    let address = value.wrapping_sub(1);
    (value & 3 == 1 && address.is_multiple_of(8) && address >= 1 << 12).then_some(address)
}

/// A small integer.
fn small(value: u64) -> Option<u64> {
    (value & 0xffff_ffff == 0).then_some(value >> 32)
}

/// How many bytes a character of a type of strings has.
fn width(layout: &Layout, kind: u16) -> usize {
    1 + usize::from(kind & layout.one_byte == 0)
}

/// Characters of one or two bytes.
fn units(bytes: &[u8], width: usize) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(width).map(|unit| match *unit {
        [low, high] => u16::from_ne_bytes([low, high]),
        [byte] => u16::from(byte),
        _ => 0,
    })
}

impl<'a, M: Memory> ObjectReader<'a, M> {
    /// Reads objects of a layout. `types` and `lines` keep what is found.
    pub fn new(
        layout: &'a Layout,
        memory: &'a M,
        types: &'a mut HashMap<u64, Option<u16>>,
        lines: &'a mut Lines,
    ) -> Self {
        Self {
            layout,
            memory,
            types,
            lines,
            reads: Cell::new(0),
        }
    }

    /// What the closures of a function share, from a reference to one of them.
    pub fn shared(&mut self, function: u64) -> Option<u64> {
        let function = self.head::<64>(function)?;
        let is_function = self.layout.function_types.contains(&function.kind);
        is_function.then_some(())?;
        let shared = function.word(self.layout.function_shared)?;
        object(shared).map(|_| shared)
    }

    /// The name of a function with where it stands, as in V8's perf maps (`run /srv/app.js:10:5`), from what its closures share.
    pub fn name(&mut self, shared: u64) -> Option<String> {
        let layout = self.layout;
        let shared = self.head::<64>(shared)?;
        (shared.kind == layout.shared_type).then_some(())?;
        // Functions of V8 itself have none.
        let script = self.head::<32>(shared.word(layout.shared_script)?)?;
        (script.kind == layout.script_type).then_some(())?;
        let (name, start) = self.own_name(shared.word(layout.shared_name)?)?;
        let path = self.head::<32>(script.word(layout.script_name)?)?;
        let path = match self.is_string(&path) {
            true => self.text(&path)?,
            false => String::new(),
        };
        let name = match &*name {
            "" => "(anonymous)",
            name => name,
        };
        let position = start.and_then(|start| self.position(&script, start));
        Some(match position {
            _ if path.is_empty() => name.to_owned(),
            Some((line, column)) => format!("{name} {path}:{line}:{column}"),
            None => format!("{name} {path}"),
        })
    }

    /// The name from what the closures share for it: a string, a list of variables, or the number 0.
    fn own_name(&mut self, value: u64) -> Option<NameAndStart> {
        if small(value).is_some() {
            return Some((String::new(), None));
        }
        let head = self.head::<64>(value)?;
        if self.is_string(&head) {
            return Some((self.text(&head)?, None));
        }
        (head.kind == self.layout.scope_type).then_some(())?;
        self.scope_name(&head)
    }

    /// The name in a list of variables. Behind the variables follow, in one of a function, its name (or the number 0), the place of the variable that has its
    /// name, and the name that was made up for one without.
    fn scope_name(&mut self, scope: &Head<64>) -> Option<NameAndStart> {
        let layout = self.layout;
        let count = small(scope.word(layout.scope_count)?)?;
        (count <= VARIABLES_MAX).then_some(())?;
        let names = if count < INLINE_NAMES { count } else { 1 };
        let offset = layout.scope_first as u64 + 8 * (names + count);
        let mut words = [0; 32];
        self.read(scope.address.checked_add(offset)?, &mut words)?;
        let (words, _) = words.as_chunks();
        let [own, place, made_up, start] = *words else {
            return None;
        };
        let [own, place, made_up, start] = [own, place, made_up, start].map(u64::from_ne_bytes);
        // One that is not of a function goes on with something else.
        if small(place).is_none() || object(made_up).is_none() {
            return Some((String::new(), None));
        }
        let start = match layout.is_scope_position_first {
            true => scope.word(layout.scope_first - 16)?,
            false => start,
        };
        let mut name = self.string_or_none(own)?;
        if name.is_empty() {
            name = self.string_or_none(made_up)?;
        }
        Some((name, small(start)))
    }

    /// The text of a value if it is a string, and none of another one.
    fn string_or_none(&mut self, value: u64) -> Option<String> {
        if small(value).is_some() {
            return Some(String::new());
        }
        let head = self.head::<32>(value)?;
        match self.is_string(&head) {
            true => self.text(&head),
            false => Some(String::new()),
        }
    }

    /// The line and the column of a place in the source of a script.
    fn position(&mut self, script: &Head<32>, start: u64) -> Option<(usize, usize)> {
        let source = self.head::<32>(script.word(self.layout.script_source)?)?;
        let is_plain = self.is_string(&source)
            && source.kind & self.layout.representation == self.layout.sequential;
        is_plain.then_some(())?;
        let length = self.length(&source)?;
        let (layout, memory) = (self.layout, self.memory);
        let read = || {
            let width = width(layout, source.kind);
            let bytes = length.checked_mul(width)?;
            (bytes <= SOURCE_BYTES_MAX).then_some(())?;
            let begin = source.address.checked_add(layout.string_chars as u64)?;
            let mut starts = Starts::default();
            let mut buffer = vec![0; bytes.min(SOURCE_PART_BYTES)];
            for offset in (0..bytes).step_by(SOURCE_PART_BYTES) {
                let part = &mut buffer[..(bytes - offset).min(SOURCE_PART_BYTES)];
                memory.read(begin.checked_add(offset as u64)?, part)?;
                starts.add(units(part, width));
            }
            Some(starts.finish())
        };
        let start = usize::try_from(start).ok()?;
        self.lines.position((source.address, length), start, read)
    }

    fn is_string<const N: usize>(&self, head: &Head<N>) -> bool {
        head.kind < self.layout.first_nonstring
    }

    /// How many characters a string has.
    fn length<const N: usize>(&self, string: &Head<N>) -> Option<usize> {
        let length = string.bytes.get(self.layout.string_length..)?;
        usize::try_from(i32::from_ne_bytes(*length.first_chunk()?)).ok()
    }

    /// The beginning of a string's text. A part of it that cannot be read leaves nothing of it.
    fn text<const N: usize>(&mut self, string: &Head<N>) -> Option<String> {
        let layout = self.layout;
        let mut text = String::new();
        let mut open = Vec::new();
        let mut next = Some((string.address | 1, 0, usize::MAX));
        while let Some((value, from, most)) = next {
            let head = self.head::<32>(value)?;
            self.is_string(&head).then_some(())?;
            let length = self.length(&head)?;
            let count = length.checked_sub(from)?.min(most);
            let kind = head.kind & layout.representation;
            if kind == layout.sequential {
                let room = NAME_BYTES_MAX.saturating_sub(text.len());
                text.push_str(&self.characters(&head, from, count.min(room))?);
            } else if kind == layout.cons && from == 0 && most >= length {
                open.push((head.word(layout.cons_first + 8)?, 0, usize::MAX));
                open.push((head.word(layout.cons_first)?, 0, usize::MAX));
            } else if kind == layout.sliced {
                let offset = small(head.word(layout.sliced_parent + 8)?)?;
                let offset = usize::try_from(offset).ok()?.checked_add(from)?;
                open.push((head.word(layout.sliced_parent)?, offset, count));
            } else if kind == layout.thin {
                open.push((head.word(layout.thin_actual)?, from, most));
            } else {
                return None;
            }
            next = open.pop().filter(|_| text.len() < NAME_BYTES_MAX);
        }
        text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
        Some(text)
    }

    /// Characters of a sequential string.
    fn characters<const N: usize>(
        &self,
        head: &Head<N>,
        from: usize,
        count: usize,
    ) -> Option<String> {
        let width = width(self.layout, head.kind);
        let mut buffer = [0; 2 * NAME_BYTES_MAX];
        let buffer = buffer.get_mut(..count.checked_mul(width)?)?;
        let offset = from
            .checked_mul(width)?
            .checked_add(self.layout.string_chars)?;
        self.read(head.address.checked_add(offset as u64)?, buffer)?;
        let decoded = char::decode_utf16(units(buffer, width));
        let plain = |found: Result<char, _>| match found.unwrap_or(char::REPLACEMENT_CHARACTER) {
            control if control.is_control() => ' ',
            character => character,
        };
        Some(decoded.map(plain).collect())
    }

    /// The beginning of an object, with its type.
    fn head<const N: usize>(&mut self, value: u64) -> Option<Head<N>> {
        let address = object(value)?;
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        let map = u64::from_ne_bytes(*bytes.first_chunk()?);
        let kind = match self.types.get(&map) {
            Some(kind) => *kind,
            None => {
                let kind = self.kind(map);
                self.types.insert(map, kind);
                kind
            }
        };
        Some(Head {
            address,
            kind: kind?,
            bytes,
        })
    }

    /// The type of the objects of a map, which has a map itself: one whose type is that of maps.
    fn kind(&self, map: u64) -> Option<u16> {
        let read = |map: u64| {
            let mut bytes = [0; 32];
            self.read(object(map)?, &mut bytes)?;
            let kind = bytes.get(self.layout.instance_type..)?.first_chunk()?;
            let map = u64::from_ne_bytes(*bytes.first_chunk()?);
            Some((map, u16::from_ne_bytes(*kind)))
        };
        let (of_map, kind) = read(map)?;
        (read(of_map)?.1 == self.layout.map_type).then_some(kind)
    }

    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        self.reads.set(self.reads.get() + 1);
        (self.reads.get() <= READS_MAX).then_some(())?;
        self.memory.read(address, buffer)
    }
}
