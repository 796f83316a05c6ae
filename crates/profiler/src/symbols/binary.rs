//! Files of code: symbol tables, and what their compiler says of functions, inlined ones and lines.
//!
//! What the compiler says (DWARF) is in the file, or in the one that a package of debug information put below `/usr/lib/debug` under the file's build
//! id, or under the name that the file gives (`.gnu_debuglink`).
//!
//! # Limits
//! Sections of more than [`SECTION_BYTES_MAX`] are not read. Damaged DWARF gives no names; then the symbol table does.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{EndianArcSlice, RunTimeEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, SymbolKind};

use super::Named;
use super::demangle::demangle;

/// The most bytes of a section of debug information, once it is decompressed.
pub const SECTION_BYTES_MAX: u64 = 1 << 30;

/// How far code may be from the beginning of a function whose length is not known, as of those in assembler.
const UNSIZED_BYTES_MAX: u64 = 64 << 10;

/// Where packages put debug information.
const DEBUG_FOLDER: &str = "/usr/lib/debug";

type Bytes = EndianArcSlice<RunTimeEndian>;

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
    name: String,
}

/// The names of a file.
pub struct SymbolFile {
    symbols: Vec<Symbol>,
    dwarf: Option<addr2line::Context<Bytes>>,
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
        let cache = ReadCache::new(File::open(path)?);
        let file = ElfFile64::<Endianness, _>::parse(&cache)?;
        let found = hexadecimal(file.build_id().ok().flatten().unwrap_or_default());
        if !build_id.is_empty() && found != build_id {
            return Err(SymbolError::Other(found));
        }
        let mut names = Self {
            symbols: symbols(&file),
            dwarf: dwarf(&file),
        };
        if names.dwarf.is_none() {
            names.look_elsewhere(path, &file, &found);
        }
        Ok(names)
    }

    /// Looks for a file of debug information.
    fn look_elsewhere<'data, R: ReadRef<'data>>(
        &mut self,
        path: &Path,
        file: &ElfFile64<'data, Endianness, R>,
        build_id: &str,
    ) {
        for candidate in candidates(path, file, build_id) {
            let Ok(opened) = File::open(candidate) else {
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
            self.dwarf = dwarf(&debug);
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
                // Line tables alone leave namespaces out.
                Some(outermost) if name.contains(&outermost.function) => outermost.function = name,
                Some(_) => {}
            }
        }
        found.retain(|named| !named.function.is_empty());
        found
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The functions of the symbol tables, by their addresses.
fn symbols<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Vec<Symbol> {
    let mut found: Vec<Symbol> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| {
            Some(Symbol {
                address: symbol.address(),
                bytes: symbol.size(),
                name: symbol
                    .name()
                    .ok()
                    .filter(|name| !name.is_empty())?
                    .to_owned(),
            })
        })
        .collect();
    // Of several names of one address the one with a size counts.
    found.sort_by_key(|symbol| (symbol.address, std::cmp::Reverse(symbol.bytes)));
    found.dedup_by_key(|symbol| symbol.address);
    found
}

/// What the compiler says; none where it says nothing.
fn dwarf<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
) -> Option<addr2line::Context<Bytes>> {
    file.section_by_name(".debug_info")
        .or_else(|| file.section_by_name(".zdebug_info"))?;
    let endian = match file.is_little_endian() {
        true => RunTimeEndian::Little,
        false => RunTimeEndian::Big,
    };
    let section = |id: SectionId| -> Result<Bytes, gimli::Error> {
        let bytes = file
            .section_by_name(id.name())
            .filter(|section| section.size() <= SECTION_BYTES_MAX)
            .filter(|section| {
                let compressed = section.compressed_data();
                compressed.is_ok_and(|data| data.uncompressed_size <= SECTION_BYTES_MAX)
            })
            .and_then(|section| section.uncompressed_data().ok());
        Ok(EndianArcSlice::new(
            Arc::from(&*bytes.unwrap_or_default()),
            endian,
        ))
    };
    let sections = gimli::Dwarf::load(section).ok()?;
    addr2line::Context::from_dwarf(sections).ok()
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
