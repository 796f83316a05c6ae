//! Files of code: what is needed to unwind stacks through them, and to turn addresses of a process into addresses of the file.
//!
//! Tables are shared by all processes that run the file. Those of the files that began to run last are kept when no process runs them: scripts start
//! the same short programs again and again.
//!
//! # Limits
//! Files that no process runs: [`RECENT_MAX`], with tables of [`RECENT_BYTES_MAX`] together.
//! A file whose headers or tables cannot be read has none: stacks go through it by frame pointers. Tables of more than
//! [`TABLE_BYTES_MAX`] are not read, nor those that may not end (see `tables`). Of the parts that are loaded, [`LOADS_MAX`] count.
//! Only regular files are opened.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::Path;
use std::sync::{Arc, Weak};

use framehop::ExplicitModuleSectionInfo;
use gimli::BaseAddresses;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadCache, ReadRef, elf};

use super::runtimes::Runtime;
use super::tables::{self, FrameTable, Unusual};
use super::v8::layout::Layout;

/// The most bytes of one table.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// The most files that are kept although no process runs them.
const RECENT_MAX: usize = 64;

/// The most bytes of their tables.
const RECENT_BYTES_MAX: usize = 64 << 20;

/// The most parts of a file with code; those of linkers have one or two.
const LOADS_MAX: usize = 64;

/// Bytes of a table, shared.
pub type Table = Arc<[u8]>;

/// The smallest page; larger ones have the same offsets within them.
const PAGE_BYTES: u64 = 4096;

/// Code of a file that is loaded in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    file_offset: u64,
    bytes: u64,
    address: u64,
}

/// A table at an address of the file.
#[derive(Debug, Clone, Default)]
struct Section {
    address: u64,
    data: Option<Table>,
}

/// A file of code.
#[derive(Debug, Default)]
pub struct Binary {
    /// The build id, in hexadecimal; empty where it has none.
    pub build_id: String,
    loads: Vec<Load>,
    tables: Tables,
    /// Those of the functions that BOLT, which puts the functions that run often together, has left where they were.
    left_by_bolt: Option<Tables>,
    /// Where V8 keeps names of functions, if the file has it.
    pub v8: Option<Layout>,
}

/// Unwinding tables, and the code that they are of.
#[derive(Debug, Default)]
struct Tables {
    text: Option<(u64, u64)>,
    eh_frame: Section,
    eh_frame_hdr: Section,
    debug_frame: Option<Table>,
    /// The functions of `.eh_frame` that the library has no short rule for.
    unusual: Vec<Unusual>,
}

impl Binary {
    /// Reads the headers and tables of a file.
    ///
    /// # Errors
    /// It cannot be read, or is not a 64-bit ELF file.
    pub fn read(path: &Path) -> Result<Self, BinaryError> {
        let cache = ReadCache::new(disk::regular::open(path)?);
        let mut binary = Self::of(&cache)?;
        if Runtime::has_v8(&path.to_string_lossy()) {
            binary.v8 = Layout::of(&ElfFile64::parse(&cache)?);
        }
        Ok(binary)
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    /// It is not a 64-bit ELF file.
    pub fn of<'data, R: ReadRef<'data>>(data: R) -> Result<Self, BinaryError> {
        let file = ElfFile64::<Endianness, R>::parse(data)?;
        let endian = file.endian();
        let headers = file.elf_header().program_headers(endian, data)?;
        let load = |header: &elf::ProgramHeader64<Endianness>| Load {
            file_offset: header.p_offset(endian),
            bytes: header.p_filesz(endian),
            address: header.p_vaddr(endian),
        };
        let is_code = |header: &&elf::ProgramHeader64<Endianness>| {
            header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian) & elf::PF_X != 0
        };
        let build_id = file.build_id().ok().flatten().unwrap_or_default();
        let is_by_bolt = file.section_by_name(".bolt.org.eh_frame").is_some();
        Ok(Self {
            build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
            loads: headers
                .iter()
                .filter(is_code)
                .take(LOADS_MAX)
                .map(load)
                .collect(),
            tables: Tables::of(&file, ""),
            left_by_bolt: is_by_bolt.then(|| Tables::of(&file, ".bolt.org")),
            v8: None,
        })
    }

    /// The address in the file for an offset in its code, or in the page in which that begins, since whole pages are mapped; the offset
    /// itself where no code is loaded from there.
    pub fn address_of(&self, file_offset: u64) -> u64 {
        let load = self.loads.iter().find(|load| {
            let first = load.file_offset - load.file_offset % PAGE_BYTES;
            file_offset >= first && file_offset < load.file_offset.saturating_add(load.bytes)
        });
        match load {
            Some(load) => file_offset.wrapping_add(load.address.wrapping_sub(load.file_offset)),
            None => file_offset,
        }
    }

    /// How much memory its tables take.
    fn bytes(&self) -> usize {
        let left = self.left_by_bolt.as_ref().map_or(0, Tables::bytes);
        self.tables.bytes() + left
    }

    /// What unwinding needs for code at a range of the file's addresses.
    pub fn sections(&self, range: &Range<u64>) -> ExplicitModuleSectionInfo<Table> {
        let is_there = |tables: &&Tables| {
            let text = tables.text.as_ref();
            text.is_some_and(|(start, _)| range.contains(start))
        };
        let left = self.left_by_bolt.as_ref().filter(is_there);
        left.unwrap_or(&self.tables).sections()
    }

    /// Whether a function is unusual in any of the tables.
    pub(super) fn has_unusual(&self) -> bool {
        let left = self.left_by_bolt.as_ref();
        left.into_iter()
            .chain([&self.tables])
            .any(|tables| !tables.unusual.is_empty())
    }

    /// The table of the code at an address of the file, if it has any.
    pub(super) fn frame_table(&self, address: u64) -> Option<FrameTable<'_>> {
        let is_there = |tables: &&Tables| {
            let text = tables.text;
            text.is_some_and(|(start, end)| (start..end).contains(&address))
        };
        let left = self.left_by_bolt.as_ref().filter(is_there);
        let tables = left.unwrap_or(&self.tables);
        Some(FrameTable {
            data: tables.eh_frame.data.as_deref()?,
            list: tables.eh_frame_hdr.data.as_deref(),
            unusual: &tables.unusual,
            bases: tables.bases(),
        })
    }
}

impl Tables {
    /// Those in sections whose names begin so.
    fn of<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>, prefix: &str) -> Self {
        let named = |name: &str| section(file, &format!("{prefix}{name}"));
        let text = file.section_by_name(&format!("{prefix}.text"));
        let mut tables = Self {
            text: text.map(|text| (text.address(), text.address().saturating_add(text.size()))),
            eh_frame: named(".eh_frame"),
            eh_frame_hdr: named(".eh_frame_hdr"),
            debug_frame: named(".debug_frame").data,
            unusual: Vec::new(),
        };
        tables.keep_what_ends();
        tables
    }

    fn bases(&self) -> BaseAddresses {
        let text = self.text.map_or(0, |(start, _)| start);
        tables::bases(self.eh_frame.address, self.eh_frame_hdr.address, text)
    }

    /// Lets go of tables that may not end.
    fn keep_what_ends(&mut self) {
        let bases = self.bases();
        if let Some(data) = &self.eh_frame.data {
            let functions = tables::of_eh_frame(data, &bases);
            let list = self.eh_frame_hdr.data.as_deref();
            let is_list = functions.as_ref().zip(list);
            if !is_list.is_some_and(|(functions, list)| tables::is_list_of(functions, list, &bases))
            {
                // The functions can be found without a list.
                self.eh_frame_hdr.data = None;
            }
            match functions {
                Some(functions) => self.unusual = functions.unusual,
                None => self.eh_frame.data = None,
            }
        }
        self.debug_frame = self
            .debug_frame
            .take()
            .filter(|data| tables::is_debug_frame(data));
    }

    fn bytes(&self) -> usize {
        let sections = [
            &self.eh_frame.data,
            &self.eh_frame_hdr.data,
            &self.debug_frame,
        ];
        let sections: usize = sections.into_iter().flatten().map(|data| data.len()).sum();
        sections + self.unusual.len() * size_of::<Unusual>()
    }

    fn sections(&self) -> ExplicitModuleSectionInfo<Table> {
        let range = |section: &Section| {
            let data = section.data.as_ref()?;
            Some(section.address..section.address.saturating_add(data.len() as u64))
        };
        ExplicitModuleSectionInfo {
            text_svma: self.text.map(|(start, end)| start..end),
            eh_frame_svma: range(&self.eh_frame),
            eh_frame: self.eh_frame.data.clone(),
            eh_frame_hdr_svma: range(&self.eh_frame_hdr),
            eh_frame_hdr: self.eh_frame_hdr.data.clone(),
            debug_frame: self.debug_frame.clone(),
            ..ExplicitModuleSectionInfo::default()
        }
    }
}

fn section<'data, R: ReadRef<'data>>(
    file: &ElfFile64<'data, Endianness, R>,
    name: &str,
) -> Section {
    let Some(section) = file.section_by_name(name) else {
        return Section::default();
    };
    // Go compresses `.debug_frame`: its functions that call none keep no frame pointer.
    let data = section.compressed_data().ok();
    let data = data.filter(|data| data.uncompressed_size <= TABLE_BYTES_MAX);
    let data = data.and_then(|data| data.decompress().ok());
    let data = data.filter(|data| !data.is_empty());
    Section {
        address: section.address(),
        data: data.map(Into::into),
    }
}

/// Why a file has no tables.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The system refuses.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is no 64-bit ELF file, or a damaged one.
    #[error("it is not a 64-bit ELF file: {0}")]
    Format(#[from] object::Error),
}

/// What identifies a file while it exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i128,
}

/// The files that processes run.
#[derive(Debug, Default)]
pub struct Binaries {
    known: HashMap<FileKey, Weak<Binary>>,
    /// Those that were asked for last, the last one at the end.
    recent: VecDeque<Arc<Binary>>,
    vdso: Option<Arc<Binary>>,
}

impl Binaries {
    /// A file, read unless a process runs it already. One without tables where it cannot be read.
    pub fn get(&mut self, path: &Path) -> Arc<Binary> {
        let Some(key) = key(path) else {
            return Arc::default();
        };
        if let Some(binary) = self.known.get(&key).and_then(Weak::upgrade) {
            self.keep(&binary);
            return binary;
        }
        // A damaged file can be more than the libraries that read it were made for.
        let read = catch_unwind(|| Binary::read(path).unwrap_or_default());
        let binary = Arc::new(read.unwrap_or_default());
        self.keep(&binary);
        self.known.retain(|_, binary| binary.strong_count() > 0);
        self.known.insert(key, Arc::downgrade(&binary));
        binary
    }

    /// Keeps a file for processes that may still begin.
    fn keep(&mut self, binary: &Arc<Binary>) {
        self.recent.retain(|other| !Arc::ptr_eq(other, binary));
        self.recent.push_back(Arc::clone(binary));
        let mut bytes: usize = self.recent.iter().map(|binary| binary.bytes()).sum();
        while self.recent.len() > RECENT_MAX || bytes > RECENT_BYTES_MAX {
            let oldest = self.recent.pop_front();
            bytes -= oldest.map_or(0, |binary| binary.bytes());
        }
    }

    /// The code that the kernel maps into every process, as this process has it.
    pub fn vdso(&mut self) -> Arc<Binary> {
        let read = || Binary::of(&*own_vdso()?).ok();
        let vdso = self
            .vdso
            .get_or_insert_with(|| Arc::new(read().unwrap_or_default()));
        Arc::clone(vdso)
    }
}

fn key(path: &Path) -> Option<FileKey> {
    use std::os::unix::fs::MetadataExt;
    let data = std::fs::metadata(path).ok()?;
    Some(FileKey {
        device: data.dev(),
        inode: data.ino(),
        bytes: data.len(),
        modified_ns: i128::from(data.mtime()) * 1_000_000_000 + i128::from(data.mtime_nsec()),
    })
}

fn own_vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    let memory = File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_tables() {
        let mut binaries = Binaries::default();
        let path = std::env::current_exe().unwrap();
        let binary = binaries.get(&path);
        assert!(binary.tables.eh_frame.data.is_some() && binary.tables.eh_frame_hdr.data.is_some());
        assert!(!binary.loads.is_empty());
        assert!(Arc::ptr_eq(&binary, &binaries.get(&path)));
        let [.., last] = &binary.loads[..] else {
            panic!("no part is loaded")
        };
        let page = last.file_offset % PAGE_BYTES;
        assert_eq!(binary.address_of(last.file_offset), last.address);
        assert_eq!(
            binary.address_of(last.file_offset - page),
            last.address - page
        );
    }

    #[test]
    fn the_kernels_code_has_tables() {
        let vdso = Binaries::default().vdso();
        assert!(vdso.tables.eh_frame.data.is_some());
        assert_ne!(vdso.build_id, "");
    }

    #[test]
    fn some_files_are_kept_that_no_process_runs() {
        let folder = tempfile::tempdir().unwrap();
        let mut binaries = Binaries::default();
        let path = |number: usize| folder.path().join(number.to_string());
        for number in 0..1000 {
            std::fs::write(path(number), "no program").unwrap();
            binaries.get(&path(number));
            assert!(binaries.known.len() <= RECENT_MAX + 1);
        }
        let kept = Arc::downgrade(&binaries.get(&path(999)));
        assert!(kept.upgrade().is_some());
        for _ in 0..3 {
            let data = Some(vec![0; RECENT_BYTES_MAX / 2].into());
            let mut large = Binary::default();
            large.tables.debug_frame = data;
            binaries.keep(&Arc::new(large));
        }
        assert_eq!(binaries.recent.len(), 2);
        assert!(kept.upgrade().is_none());
    }

    #[test]
    fn what_is_no_program_has_none() {
        let binary = Binaries::default().get(Path::new("/proc/self/maps"));
        assert!(binary.tables.eh_frame.data.is_none());
        assert_eq!(binary.address_of(7), 7);
    }
}
