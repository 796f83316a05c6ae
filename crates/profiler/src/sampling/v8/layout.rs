//! Where V8 keeps what names a function, as its binary says itself.
//!
//! A binary with V8 exports constants for debuggers, `v8dbg_*`, each of 4 bytes: offsets in objects, the numbers of their types, masks. They differ between
//! versions, some by their names too. Source: `tools/gen-postmortem-metadata.py` of V8.
//!
//! # Limits
//! Tagged values have 8 bytes and small integers the upper half of them: builds with compressed pointers have no layout.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use object::read::elf::{ElfFile64, SectionHeader, Sym};
use object::{Endianness, Object, ObjectSection, ReadRef, SectionIndex, SectionKind, elf};

const PREFIX: &str = "v8dbg_";
/// What the names of the functions begin with that V8 was built with.
const BUILTIN: &str = "Builtins_";
/// The types of functions are consecutive; so many of them are known at most.
const FUNCTION_TYPES_MAX: u16 = 64;

/// Offsets, types and masks of one build. Offsets are from where an object begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// From the base of a frame to its function, and to its context or the mark of a frame that is of no function.
    pub frame_function: i64,
    /// As above.
    pub frame_context: i64,
    /// In a map, which each object begins with.
    pub instance_type: usize,
    /// In a function.
    pub function_shared: usize,
    /// In what the closures of one function share.
    pub shared_name: usize,
    /// As above.
    pub shared_script: usize,
    /// In a script.
    pub script_name: usize,
    /// As above.
    pub script_source: usize,
    /// In a list of the variables of a function: how many there are in its context, and the first of them.
    pub scope_count: usize,
    /// As above.
    pub scope_first: usize,
    /// Whether the variables follow where the function begins and ends in the source. Else that follows its name.
    pub is_scope_position_first: bool,
    /// In strings.
    pub string_length: usize,
    /// As above.
    pub string_chars: usize,
    /// The first of two halves; the second follows.
    pub cons_first: usize,
    /// What a sliced string is a part of; the offset in it follows.
    pub sliced_parent: usize,
    /// What a string was replaced with.
    pub thin_actual: usize,
    /// The numbers of types.
    pub map_type: u16,
    /// As above.
    pub function_types: RangeInclusive<u16>,
    /// As above.
    pub shared_type: u16,
    /// As above.
    pub scope_type: u16,
    /// As above.
    pub script_type: u16,
    /// Strings have types below.
    pub first_nonstring: u16,
    /// The bits of their types.
    pub representation: u16,
    /// As above; 0 stands for characters of two bytes.
    pub one_byte: u16,
    /// What the bits of the representation can be.
    pub sequential: u16,
    /// As above.
    pub cons: u16,
    /// As above.
    pub sliced: u16,
    /// As above.
    pub thin: u16,
    /// Where the functions are that V8 was built with, as addresses of the file; empty where it has no symbols.
    pub builtins: Range<u64>,
}

impl Layout {
    /// That of a binary, if it has V8 with a layout that is known.
    pub fn of<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Option<Self> {
        let symbols = Symbols::of(file, ".dynsym")?;
        let found = symbols.with_prefix(PREFIX).filter_map(|(name, symbol)| {
            let value = value(file, symbol)?;
            Some((std::str::from_utf8(name).ok()?, value))
        });
        let constants: HashMap<&str, i32> = found.collect();
        let layout = Self::from_constants(&constants)?;
        Some(Self {
            builtins: builtins(file).unwrap_or_default(),
            ..layout
        })
    }

    /// That of the constants of a build, named without their prefix.
    pub fn from_constants(constants: &HashMap<&str, i32>) -> Option<Self> {
        let get = |names: &[&str]| names.iter().find_map(|name| constants.get(name).copied());
        let offset = |names: &[&str]| {
            let offset = usize::try_from(get(names)?).ok()?;
            (offset < 256).then_some(offset)
        };
        let number = |names: &[&str]| u16::try_from(get(names)?).ok();
        // Small integers end with 0, and have 32 bits; other values end with 01, or 11 where they are weak.
        let tags = [
            ("SmiTag", 0),
            ("SmiTagMask", 1),
            ("SmiShiftSize", 31),
            ("SmiValueShift", 1),
            ("HeapObjectTag", 1),
            ("HeapObjectTagMask", 3),
            ("TaggedSize", 8),
        ];
        let is_plain = |(name, value): &(&str, i32)| get(&[name]) == Some(*value);
        tags.iter().all(is_plain).then_some(())?;
        let function = number(&["type_JSFunction__JS_FUNCTION_TYPE"])?;
        let chars = offset(&["class_SeqOneByteString__chars__char"])?;
        let is_same = offset(&["class_SeqTwoByteString__chars__char"])? == chars;
        is_same.then_some(())?;
        let scope = |name: &str| Some(8 + 8 * offset(&[name])?);
        Some(Self {
            frame_function: i64::from(get(&["off_fp_function"])?),
            frame_context: i64::from(get(&["off_fp_context_or_frame_type", "off_fp_context"])?),
            instance_type: offset(&["class_Map__instance_type__uint16_t"])?,
            function_shared: offset(&["class_JSFunction__shared__SharedFunctionInfo"])?,
            shared_name: offset(&[
                "class_SharedFunctionInfo__name_or_scope_info__Object",
                "class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
                "class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
            ])?,
            shared_script: offset(&[
                "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
                "class_SharedFunctionInfo__script__Tagged_HeapObject_",
                "class_SharedFunctionInfo__raw_script__Tagged_Object_",
            ])?,
            script_name: offset(&["class_Script__name__Object"])?,
            script_source: offset(&["class_Script__source__Object"])?,
            scope_count: scope("scopeinfo_idx_ncontextlocals")?,
            scope_first: scope("scopeinfo_idx_first_vars")?,
            is_scope_position_first: match get(&["scopeinfo_idx_first_vars"])? {
                3 => false,
                5 => true,
                _ => return None,
            },
            string_length: offset(&["class_String__length__int32_t"])?,
            string_chars: chars,
            cons_first: offset(&["class_ConsString__first__String"])?,
            sliced_parent: offset(&["class_SlicedString__parent__String"])?,
            thin_actual: offset(&["class_ThinString__actual__String"])?,
            map_type: number(&["type_Map__MAP_TYPE"])?,
            function_types: function..=last_function(constants, function),
            shared_type: number(&["type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE"])?,
            scope_type: number(&["type_ScopeInfo__SCOPE_INFO_TYPE"])?,
            script_type: number(&["type_Script__SCRIPT_TYPE"])?,
            first_nonstring: number(&["FirstNonstringType"])?,
            representation: number(&["StringRepresentationMask"])?,
            one_byte: number(&["OneByteStringTag"])?,
            sequential: number(&["SeqStringTag"])?,
            cons: number(&["ConsStringTag"])?,
            sliced: number(&["SlicedStringTag"])?,
            thin: number(&["ThinStringTag"])?,
            builtins: 0..0,
        })
    }
}

/// The last type of functions: the one before the next type that has a constant. Kinds of functions have none of their own.
fn last_function(constants: &HashMap<&str, i32>, first: u16) -> u16 {
    let types = constants
        .iter()
        .filter(|(name, _)| name.starts_with("type_"));
    let next = types
        .filter_map(|(_, value)| u16::try_from(*value).ok())
        .filter(|value| *value > first)
        .min();
    let last = next.map_or(first, |next| next - 1);
    last.min(first.saturating_add(FUNCTION_TYPES_MAX))
}

/// A table of symbols. There are hundreds of thousands, so their names are read at once.
struct Symbols<'data> {
    symbols: &'data [Symbol],
    names: &'data [u8],
    endian: Endianness,
}

type Symbol = elf::Sym64<Endianness>;

impl<'data> Symbols<'data> {
    fn of<R: ReadRef<'data>>(
        file: &ElfFile64<'data, Endianness, R>,
        section: &str,
    ) -> Option<Self> {
        let section = file.section_by_name(section)?;
        let header = section.elf_section_header();
        let endian = file.endian();
        let names = file.section_by_index(header.link(endian)).ok()?;
        Some(Self {
            symbols: header.data_as_array(endian, file.data()).ok()?,
            names: names.data().ok()?,
            endian,
        })
    }

    /// Those whose names begin so, with the rest of their names.
    fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&'data [u8], &'data Symbol)> {
        let (names, endian) = (self.names, self.endian);
        self.symbols.iter().filter_map(move |symbol| {
            let start = usize::try_from(symbol.st_name.get(endian)).ok()?;
            let name = names.get(start..)?.strip_prefix(prefix.as_bytes())?;
            let end = name.iter().position(|byte| *byte == 0)?;
            Some((name.get(..end)?, symbol))
        })
    }
}

/// The 4 bytes at a symbol.
fn value<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    symbol: &Symbol,
) -> Option<i32> {
    let endian = file.endian();
    let index = SectionIndex(usize::from(symbol.st_shndx(endian)));
    let section = file.section_by_index(index).ok()?;
    // What is 0 has no bytes in the file.
    if section.kind() == SectionKind::UninitializedData {
        return Some(0);
    }
    let within = symbol.st_value(endian).checked_sub(section.address())?;
    let (start, bytes) = section.file_range()?;
    (within.checked_add(4)? <= bytes).then_some(())?;
    let bytes = file.data().read_bytes_at(start.checked_add(within)?, 4);
    let bytes = bytes.ok()?;
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Where the functions are that V8 was built with.
fn builtins<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
) -> Option<Range<u64>> {
    let symbols = Symbols::of(file, ".symtab")?;
    let endian = file.endian();
    let ranges = symbols.with_prefix(BUILTIN).map(|(_, symbol)| {
        let start = symbol.st_value(endian);
        start..start.saturating_add(symbol.st_size(endian))
    });
    ranges.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The constants of Node 20.
    pub const CONSTANTS: [(&str, i32); 37] = [
        ("SmiTag", 0),
        ("SmiTagMask", 1),
        ("SmiShiftSize", 31),
        ("SmiValueShift", 1),
        ("HeapObjectTag", 1),
        ("HeapObjectTagMask", 3),
        ("TaggedSize", 8),
        ("off_fp_function", -16),
        ("off_fp_context_or_frame_type", -8),
        ("class_Map__instance_type__uint16_t", 12),
        ("class_JSFunction__shared__SharedFunctionInfo", 24),
        ("class_SharedFunctionInfo__name_or_scope_info__Object", 16),
        (
            "class_SharedFunctionInfo__script_or_debug_info__HeapObject",
            32,
        ),
        ("class_Script__name__Object", 16),
        ("class_Script__source__Object", 8),
        ("scopeinfo_idx_ncontextlocals", 2),
        ("scopeinfo_idx_first_vars", 3),
        ("class_String__length__int32_t", 12),
        ("class_SeqOneByteString__chars__char", 16),
        ("class_SeqTwoByteString__chars__char", 16),
        ("class_ConsString__first__String", 16),
        ("class_SlicedString__parent__String", 16),
        ("class_ThinString__actual__String", 16),
        ("type_Map__MAP_TYPE", 255),
        ("type_JSFunction__JS_FUNCTION_TYPE", 2066),
        ("type_JSAtomicsCondition__JS_ATOMICS_CONDITION_TYPE", 2097),
        ("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE", 262),
        ("type_ScopeInfo__SCOPE_INFO_TYPE", 261),
        ("type_Script__SCRIPT_TYPE", 167),
        ("FirstNonstringType", 128),
        ("StringRepresentationMask", 7),
        ("OneByteStringTag", 8),
        ("SeqStringTag", 0),
        ("ConsStringTag", 1),
        ("SlicedStringTag", 3),
        ("ThinStringTag", 5),
        ("unknown", 1),
    ];

    #[test]
    fn constants_are_a_layout_if_none_is_missing() {
        let all = HashMap::from(CONSTANTS);
        let layout = Layout::from_constants(&all).unwrap();
        assert_eq!(layout.function_types, 2066..=2096);
        assert_eq!((layout.scope_count, layout.scope_first), (24, 32));
        for (name, _) in CONSTANTS {
            let mut rest = all.clone();
            rest.remove(name);
            let is_needed = !name.starts_with("type_JSAtomics") && name != "unknown";
            assert_eq!(Layout::from_constants(&rest).is_none(), is_needed, "{name}");
        }
    }

    #[test]
    fn compressed_pointers_and_odd_offsets_have_no_layout() {
        for (name, value) in [
            ("TaggedSize", 4),
            ("SmiShiftSize", 0),
            ("scopeinfo_idx_first_vars", 4),
            ("class_Script__name__Object", -8),
            ("class_Script__name__Object", 1 << 20),
        ] {
            let mut constants = HashMap::from(CONSTANTS);
            constants.insert(name, value);
            assert_eq!(Layout::from_constants(&constants), None, "{name}");
        }
    }
}
