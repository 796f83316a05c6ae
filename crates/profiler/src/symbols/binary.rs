//! Files of code: symbol tables, and what their compiler says of functions, inlined ones and lines.
//!
//! What the compiler says (DWARF) is in the file, or in the one that a package of debug information put below `/usr/lib/debug` under the file's build
//! id, or under the name that the file gives (`.gnu_debuglink`).
//!
//! Where a file has no symbol for an address, its unwinding tables (`.eh_frame_hdr`) say where the function begins.
//!
//! # Limits
//! Only regular files are opened. Names of symbols are up to [`NAME_BYTES_MAX`] long, and in sum up to [`NAMES_PER_BYTE_MAX`] times the bytes of
//! the table that holds them. The limits of DWARF are those of [`debug_info`]; if it is damaged, the symbol table gives the names.

use std::path::{Path, PathBuf};

use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use object::read::elf::{ElfFile64, Sym, SymbolTable};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

use super::Named;
use super::debug_info;
use super::demangle::demangle;

/// The most bytes of a symbol's name.
const NAME_BYTES_MAX: usize = 4096;
/// The most bytes of all names of a symbol table, for each byte of the section that holds them: names can share their ends.
const NAMES_PER_BYTE_MAX: usize = 16;

/// How far code may be from the beginning of a function whose length is not known, as of those in assembler.
const UNSIZED_BYTES_MAX: u64 = 64 << 10;

/// Where packages put debug information.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

/// Why a file gives no names.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is no 64-bit ELF file, or a damaged one.
    #[error("it is not a 64-bit ELF file: {0}")]
    Format(#[from] object::Error),
    /// It is another version of the file.
    #[error("its build id is {0}")]
    Other(String),
}

/// A function of a symbol table.
#[derive(Debug)]
struct Symbol {
    address: u64,
    /// 0 where it is not known.
    bytes: u64,
    /// Whether another file's function of that name would count instead.
    is_weak: bool,
    name: String,
}

impl Symbol {
    /// Of several names of one address the first one by this counts: perf's order (`choose_best_symbol` in `tools/perf/util/symbol.c`), so
    /// that it is `malloc`, not `__libc_malloc`.
    fn rank(&self) -> impl Ord + use<> {
        let underscores = self.name.bytes().take_while(|byte| *byte == b'_').count();
        let by_length = std::cmp::Reverse(self.name.len());
        (self.bytes == 0, self.is_weak, underscores, by_length)
    }
}

/// The names of a file.
pub struct SymbolFile {
    symbols: Vec<Symbol>,
    dwarf: Option<debug_info::Context>,
    /// Where functions begin, in order.
    starts: Vec<u64>,
}

impl std::fmt::Debug for SymbolFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymbolFile")
            .field("symbols", &self.symbols.len())
            .finish_non_exhaustive()
    }
}

impl SymbolFile {
    /// Reads the names of a file with a build id; of any where that is empty.
    ///
    /// # Errors
    /// It cannot be read, is no ELF file, or has another build id.
    pub fn open(path: &Path, build_id: &str) -> Result<Self, SymbolError> {
        let cache = ReadCache::new(disk::regular::open(path)?);
        let file = ElfFile64::<Endianness, _>::parse(&cache)?;
        let found = hexadecimal(file.build_id().ok().flatten().unwrap_or_default());
        if !build_id.is_empty() && found != build_id {
            return Err(SymbolError::Other(found));
        }
        let mut names = Self::read(&file);
        if names.dwarf.is_none() {
            names.look_elsewhere(path, &file, &found);
        }
        Ok(names)
    }

    /// The names of a file that is in memory, without those that other files may have for it.
    ///
    /// # Errors
    /// It is no ELF file.
    pub fn of(bytes: &[u8]) -> Result<Self, SymbolError> {
        Ok(Self::read(&ElfFile64::<Endianness, _>::parse(bytes)?))
    }

    fn read<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Self {
        Self {
            symbols: symbols(file),
            dwarf: debug_info::load(file),
            starts: starts(file).unwrap_or_default(),
        }
    }

    /// Looks for a file of debug information.
    fn look_elsewhere<'data, R: ReadRef<'data>>(
        &mut self,
        path: &Path,
        file: &ElfFile64<'data, Endianness, R>,
        build_id: &str,
    ) {
        for candidate in candidates(path, file, build_id) {
            let Ok(opened) = disk::regular::open(&candidate) else {
                continue;
            };
            let cache = ReadCache::new(opened);
            let Ok(debug) = ElfFile64::<Endianness, _>::parse(&cache) else {
                continue;
            };
            let id = hexadecimal(debug.build_id().ok().flatten().unwrap_or_default());
            if id != build_id {
                continue;
            }
            if self.symbols.is_empty() || debug.symbols().next().is_some() {
                self.symbols = symbols(&debug);
            }
            self.dwarf = debug_info::load(&debug);
            return;
        }
    }

    /// The functions at an address, from the innermost inlined one to the one that has code.
    pub fn resolve(&self, address: u64) -> Vec<Named> {
        let mut found = self.by_dwarf(address).unwrap_or_default();
        if let Some(name) = self.by_table(address) {
            match found.last_mut() {
                None => found.push(Named {
                    function: name,
                    ..Named::default()
                }),
                // Line tables alone leave namespaces out, and write parameters of types in another way.
                Some(outermost) if name.contains(without_parameters(&outermost.function)) => {
                    outermost.function = name;
                }
                Some(_) => {}
            }
        }
        found.retain(|named| !named.function.is_empty());
        found
    }

    /// Where the function of an address begins; none where that is not known.
    pub fn start_of(&self, address: u64) -> Option<u64> {
        let behind = self.starts.partition_point(|start| *start <= address);
        self.starts.get(behind.checked_sub(1)?).copied()
    }

    fn by_dwarf(&self, address: u64) -> Option<Vec<Named>> {
        // The last address is one too many for the library.
        let context = self.dwarf.as_ref().filter(|_| address < u64::MAX)?;
        let mut frames = context.find_frames(address).skip_all_loads().ok()?;
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let function = frame.function.as_ref();
            let name = function.and_then(|function| function.raw_name().ok());
            let location = frame.location.as_ref();
            let file = location.and_then(|location| location.file);
            found.push(Named {
                function: name.map(|name| demangle(&name)).unwrap_or_default(),
                file: file.unwrap_or_default().to_owned(),
                line: location.and_then(|location| location.line).unwrap_or(0),
            });
            // A damaged file could nest without end.
            if found.len() == 128 {
                break;
            }
        }
        Some(found)
    }

    fn by_table(&self, address: u64) -> Option<String> {
        let behind = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        let symbol = self.symbols.get(behind.checked_sub(1)?)?;
        let bytes = match symbol.bytes {
            0 => UNSIZED_BYTES_MAX,
            bytes => bytes,
        };
        let is_inside = address - symbol.address < bytes;
        is_inside.then(|| demangle(&symbol.name))
    }
}

/// `run` of `run<false>`.
fn without_parameters(name: &str) -> &str {
    match name.find('<') {
        None | Some(0) => name,
        Some(end) => &name[..end],
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where the functions of unwinding tables begin, in order; none where there is no list of them.
fn starts<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Option<Vec<u64>> {
    let section = |name| file.section_by_name(name);
    let start = |name| section(name).map_or(0, |section| section.address());
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(start(".eh_frame_hdr"))
        .set_eh_frame(start(".eh_frame"))
        .set_text(start(".text"));
    let Some(list) = section(".eh_frame_hdr") else {
        // Static programs have no list.
        return starts_of_tables(section(".eh_frame")?.data().ok()?, &bases);
    };
    let header = EhFrameHdr::new(list.data().ok()?, LittleEndian);
    let header = header.parse(&bases, 8).ok()?;
    let table = header.table()?;
    let mut rows = table.iter(&bases);
    let mut starts = Vec::new();
    while let Ok(Some((start, _))) = rows.next() {
        starts.extend(start.direct());
    }
    starts.sort_unstable();
    Some(starts)
}

/// The same from the tables themselves.
fn starts_of_tables(tables: &[u8], bases: &BaseAddresses) -> Option<Vec<u64>> {
    let mut tables = EhFrame::new(tables, LittleEndian);
    tables.set_address_size(8);
    let mut entries = tables.entries(bases);
    let mut starts = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(function) = entry
            && let Ok(function) = function.parse(EhFrame::cie_from_offset)
        {
            starts.push(function.initial_address());
        }
    }
    starts.sort_unstable();
    Some(starts)
}

/// The functions of the symbol tables, by their addresses.
fn symbols<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Vec<Symbol> {
    let mut names = Names::of(file, file.elf_symbol_table());
    let mut found: Vec<Symbol> = file
        .symbols()
        .filter_map(|symbol| names.symbol(&symbol))
        .collect();
    let mut names = Names::of(file, file.elf_dynamic_symbol_table());
    found.extend(
        file.dynamic_symbols()
            .filter_map(|symbol| names.symbol(&symbol)),
    );
    found.sort_by(|one, other| {
        let by_address = one.address.cmp(&other.address);
        by_address.then_with(|| one.rank().cmp(&other.rank()))
    });
    found.dedup_by(|other, first| {
        let is_same = other.address == first.address;
        if is_same {
            first.bytes = first.bytes.max(other.bytes);
        }
        is_same
    });
    found
}

/// The names of one symbol table.
struct Names<'data> {
    endian: Endianness,
    texts: &'data [u8],
    /// Bytes of names that may still be taken.
    left: usize,
}

impl<'data> Names<'data> {
    fn of<R: ReadRef<'data>>(
        file: &ElfFile64<'data, Endianness, R>,
        table: &SymbolTable<'data, object::elf::FileHeader64<Endianness>, R>,
    ) -> Self {
        use object::read::elf::SectionHeader;
        let endian = file.endian();
        let section = file.elf_section_table().section(table.string_section());
        let texts = section.and_then(|section| section.data(endian, file.data()));
        let texts = texts.unwrap_or_default();
        Self {
            endian,
            texts,
            left: texts.len().saturating_mul(NAMES_PER_BYTE_MAX),
        }
    }

    /// A symbol, where it is a function with a name.
    fn symbol<R: ReadRef<'data>>(
        &mut self,
        symbol: &object::read::elf::ElfSymbol64<'data, '_, Endianness, R>,
    ) -> Option<Symbol> {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            return None;
        }
        let start = usize::try_from(symbol.elf_symbol().st_name(self.endian)).ok()?;
        let texts = self.texts.get(start..)?;
        let texts = &texts[..texts.len().min(NAME_BYTES_MAX)];
        let length = texts.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&texts[..length]).ok()?;
        self.left = self.left.checked_sub(length)?;
        (!name.is_empty()).then(|| Symbol {
            address: symbol.address(),
            bytes: symbol.size(),
            is_weak: symbol.is_weak(),
            name: name.to_owned(),
        })
    }
}

/// Where debug information may be.
fn candidates<'data, R: ReadRef<'data>>(
    path: &Path,
    file: &ElfFile64<'data, Endianness, R>,
    build_id: &str,
) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some((first, rest)) = build_id.split_at_checked(2)
        && !rest.is_empty()
    {
        candidates.push(format!("{DEBUG_FOLDER}/.build-id/{first}/{rest}.debug").into());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    if let Ok(Some((name, _))) = file.gnu_debuglink() {
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.contains('/') {
            candidates.push(folder.join(&name));
            candidates.push(folder.join(".debug").join(&name));
            let below = folder.strip_prefix("/").unwrap_or(folder);
            candidates.push(Path::new(DEBUG_FOLDER).join(below).join(&name));
        }
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_names_the_plain_one_counts() {
        let symbol = |name: &str, bytes, is_weak| Symbol {
            address: 0,
            bytes,
            is_weak,
            name: name.to_owned(),
        };
        for (better, other) in [
            (
                symbol("malloc", 8, false),
                symbol("__libc_malloc", 8, false),
            ),
            (symbol("__read", 8, false), symbol("read", 8, true)),
            (symbol("_a", 8, true), symbol("a", 0, false)),
            (symbol("__memmove", 8, false), symbol("__memcpy", 9, false)),
        ] {
            assert!(better.rank() < other.rank(), "{better:?} {other:?}");
        }
        for (name, base) in [
            ("run<false>", "run"),
            ("main", "main"),
            ("<A as B>::c", "<A as B>::c"),
        ] {
            assert_eq!(without_parameters(name), base);
        }
    }
}
