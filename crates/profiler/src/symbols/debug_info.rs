//! What compilers say of functions, inlined ones and lines (DWARF), read with limits.
//!
//! The library that resolves addresses trusts what it reads: it follows nested functions by recursion, and reads what units refer to as often
//! as they refer to it. A damaged or hostile file could end the program by that, or stand for endless work. So all units are walked once
//! before, and information that is beyond the limits is not used; the symbol table then gives the names.
//!
//! Source: DWARF 5, <https://dwarfstd.org/doc/DWARF5.pdf>, chapters 3 (entries), 6.2 (lines), 7.5.3 (abbreviations).
//!
//! # Limits
//! Sections of more than [`SECTION_BYTES_MAX`] are not read, nor those that were compressed to less than a
//! [`RATIO_MAX`]th. Entries nest up to [`DEPTH_MAX`] deep. Tables of abbreviations do not overlap. What units refer to
//! in sum is limited by the size of all sections: see [`Budget`].

use std::collections::BTreeSet;
use std::sync::Arc;

use gimli::{
    AbbreviationsCacheStrategy, Dwarf, EndianArcSlice, Reader, RunTimeEndian, Section, SectionId,
    Unit, UnitHeader, UnitType, constants,
};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ReadRef};

/// The most bytes of a section of debug information, once it is decompressed.
pub const SECTION_BYTES_MAX: u64 = 1 << 30;

/// How many times its own bytes a compressed section may have.
const RATIO_MAX: u64 = 100;
/// So many bytes a compressed section may have in any case.
const SMALL_BYTES_MAX: u64 = 1 << 20;

/// How deep entries may nest.
const DEPTH_MAX: isize = 400;

type Bytes = EndianArcSlice<RunTimeEndian>;

/// Names and lines of addresses.
pub(super) type Context = addr2line::Context<Bytes>;

/// What the compiler says; none where it says nothing, or what cannot be used.
pub(super) fn load<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
) -> Option<Context> {
    file.section_by_name(".debug_info")
        .or_else(|| file.section_by_name(".zdebug_info"))?;
    let endian = match file.is_little_endian() {
        true => RunTimeEndian::Little,
        false => RunTimeEndian::Big,
    };
    let mut total = 0;
    let section = |id: SectionId| -> Result<Bytes, gimli::Error> {
        let bytes = section(file, id.name());
        total += bytes.len();
        Ok(EndianArcSlice::new(bytes, endian))
    };
    let mut sections = Dwarf::load(section).ok()?;
    abbreviations_are_apart(&sections)?;
    sections.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    Budget::of(total).units(&sections)?;
    Context::from_dwarf(sections).ok()
}

/// A section, decompressed; empty where it is not there or cannot be read.
fn section<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    name: &str,
) -> Arc<[u8]> {
    let read = || {
        let section = file.section_by_name(name)?;
        let compressed = section.compressed_data().ok()?;
        let by_ratio = (compressed.data.len() as u64).saturating_mul(RATIO_MAX);
        let limit = by_ratio.clamp(SMALL_BYTES_MAX, SECTION_BYTES_MAX);
        (compressed.uncompressed_size <= limit).then_some(())?;
        compressed.decompress().ok()
    };
    Arc::from(&*read().unwrap_or_default())
}

/// The units that names are taken from.
fn units(sections: &Dwarf<Bytes>) -> impl Iterator<Item = UnitHeader<Bytes>> {
    let mut units = sections.units();
    let headers = std::iter::from_fn(move || units.next().ok().flatten());
    headers.filter(|header| {
        let kind = header.type_();
        !matches!(kind, UnitType::Type { .. } | UnitType::SplitType { .. })
    })
}

/// Whether the tables of abbreviations that units refer to stand one behind the other. Each begins anywhere, and goes on up to its end: if they
/// overlapped, each byte could be of as many tables as there are units.
fn abbreviations_are_apart(sections: &Dwarf<Bytes>) -> Option<()> {
    let offsets: BTreeSet<usize> = units(sections)
        .map(|header| header.debug_abbrev_offset().0)
        .collect();
    let whole = sections.debug_abbrev.reader();
    let mut behind = 0;
    for offset in offsets {
        (offset >= behind).then_some(())?;
        let mut rest = whole.clone();
        // One that begins outside has nothing.
        if rest.skip(offset).is_ok() {
            // A damaged one is read up to where it is damaged.
            let _ = skip_abbreviations(&mut rest);
            behind = whole.len() - rest.len();
        }
    }
    Some(())
}

fn skip_abbreviations(rest: &mut Bytes) -> Result<(), gimli::Error> {
    while rest.read_uleb128()? != 0 {
        rest.read_uleb128()?;
        rest.read_u8()?;
        loop {
            let (name, form) = (rest.read_uleb128()?, rest.read_uleb128()?);
            if form == u64::from(constants::DW_FORM_implicit_const.0) {
                rest.read_sleb128()?;
            }
            if (name, form) == (0, 0) {
                break;
            }
        }
    }
    Ok(())
}

/// What units may refer to, all of them together.
struct Budget {
    /// Ranges of addresses.
    ranges: usize,
    /// Folders and files of lines.
    files: usize,
    /// Bytes of line programs.
    lines: usize,
    /// Bytes of the paths of files.
    paths: usize,
}

impl Budget {
    /// For sections of so many bytes.
    fn of(total: usize) -> Self {
        Self {
            ranges: total,
            files: total,
            lines: total,
            paths: total.saturating_mul(64).max(1 << 20),
        }
    }

    fn units(mut self, sections: &Dwarf<Bytes>) -> Option<()> {
        for header in units(sections) {
            // One that cannot be read is not read by others either.
            if let Ok(unit) = sections.unit(header) {
                self.files_of(sections, &unit)?;
                self.entries_of(sections, &unit)?;
            }
        }
        Some(())
    }

    fn files_of(&mut self, sections: &Dwarf<Bytes>, unit: &Unit<Bytes>) -> Option<()> {
        let Some(program) = &unit.line_program else {
            return Some(());
        };
        let header = program.header();
        let (folders, files) = (header.include_directories(), header.file_names());
        take(&mut self.lines, header.raw_program_buf().len())?;
        take(&mut self.files, folders.len() + files.len())?;
        let length = |value| {
            let text = sections.attr_string(unit, value);
            text.map_or(0, |text| text.len())
        };
        let root = unit.comp_dir.as_ref().map_or(0, Reader::len);
        for file in files {
            let folder = file.directory(header).map_or(0, length);
            take(&mut self.paths, root + folder + length(file.path_name()))?;
        }
        Some(())
    }

    fn entries_of(&mut self, sections: &Dwarf<Bytes>, unit: &Unit<Bytes>) -> Option<()> {
        let Ok(mut entries) = unit.header.entries_raw(&unit.abbreviations, None) else {
            return Some(());
        };
        while !entries.is_empty() {
            (entries.next_depth() <= DEPTH_MAX).then_some(())?;
            let Ok(abbreviation) = entries.read_abbreviation() else {
                break;
            };
            let attributes = abbreviation.map_or(&[][..], |abbreviation| abbreviation.attributes());
            let has_ranges = |specification: &gimli::AttributeSpecification| {
                specification.name() == constants::DW_AT_ranges
            };
            if !attributes.iter().any(has_ranges) {
                if entries.skip_attributes(attributes).is_err() {
                    break;
                }
                continue;
            }
            for specification in attributes {
                let Ok(attribute) = entries.read_attribute(*specification) else {
                    return Some(());
                };
                if has_ranges(specification) {
                    self.ranges_of(sections, unit, attribute.value())?;
                }
            }
        }
        Some(())
    }

    fn ranges_of(
        &mut self,
        sections: &Dwarf<Bytes>,
        unit: &Unit<Bytes>,
        value: gimli::AttributeValue<Bytes>,
    ) -> Option<()> {
        let offset = sections.attr_ranges_offset(unit, value);
        let ranges = offset
            .ok()
            .flatten()
            .map(|at| sections.raw_ranges(unit, at));
        if let Some(Ok(mut ranges)) = ranges {
            while let Ok(Some(_)) = ranges.next() {
                take(&mut self.ranges, 1)?;
            }
        }
        Some(())
    }
}

fn take(left: &mut usize, amount: usize) -> Option<()> {
    *left = left.checked_sub(amount)?;
    Some(())
}
