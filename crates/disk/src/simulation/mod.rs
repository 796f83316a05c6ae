//! A simulated disk: what was not synced may be lost, and everything may fail.
//!
//! Everything follows from a seed and from the order of the operations, so a run replays exactly. The model is that of
//! [`Storage`], as harsh as it allows:
//!
//! - Each page written since the file's last sync survives a crash or not, on its own, or is torn: a prefix of its new
//!   sectors before the rest of the old ones. Lengths are any that the file had since.
//! - Each name made, renamed or removed since the folder's last sync is there or not.
//! - After a failed sync some pages are on disk, some are still to be written, and some were dropped: reads see them until
//!   the crash, and no later sync writes them.
//! - Room is counted in pages, reserved ones included. A write that finds too little of it writes a part.
//!
//! Folders themselves are durable once made. A removed file gives its room back at once, and can still be read by whoever
//! has it open.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::sync::Arc;

use crate::{Listed, PAGE, Storage, StoredFile};
use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use self::content::Content;
use self::names::Names;

mod content;
mod names;
pub mod seeds;

/// What is asked of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    List,
    MakeFolder,
    Open,
    Create,
    Link,
    Rename,
    Remove,
    SyncFolder,
    Free,
    Length,
    Read,
    Write,
    Sync,
    Cut,
}

/// Called before each operation with what it is and the name of the file or folder, while the disk is not locked.
pub type Hook = Arc<dyn Fn(Kind, &str) + Send + Sync>;

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<World>>);

#[derive(Clone)]
struct World {
    random: Rng,
    files: BTreeMap<u64, Content>,
    names: Names,
    folders: BTreeSet<String>,
    next_file: u64,
    /// Bytes.
    capacity: Option<usize>,
    operations: u64,
    /// Operations until the machine stops.
    left: Option<u64>,
    is_down: bool,
    /// Which operations fail: of which kind, after how many others of that kind.
    faults: Vec<(Kind, u64)>,
    /// How many operations failed by plan.
    failures: u64,
    hook: Option<Hook>,
    trace: Option<Vec<String>>,
}

/// EIO.
fn broken() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        let world = World {
            random: Rng::with_seed(seed),
            files: BTreeMap::new(),
            names: Names::default(),
            folders: BTreeSet::from([String::new()]),
            next_file: 0,
            capacity: None,
            operations: 0,
            left: None,
            is_down: false,
            faults: Vec::new(),
            failures: 0,
            hook: None,
            trace: None,
        };
        Self(Arc::new(Mutex::new(world)))
    }

    /// The disk after a power cut: what was not synced is there or not. Whoever still has this one gets errors only.
    /// Planned faults and the hook are gone with it; capacity and trace stay.
    pub fn crash(&self) -> Self {
        self.succeed("power cut", |world| {
            world.names = world.names.crash(&mut world.random);
            let mut files = BTreeMap::new();
            for (_, file) in world.names.all() {
                let left = world.files[&file].crash(&mut world.random);
                files.insert(file, left);
            }
            world.files = files;
        })
    }

    /// The disk after the end of a process: what was written is as it was, synced or not.
    pub fn restart(&self) -> Self {
        self.succeed("end of the process", |world| {
            let names = &world.names;
            world.files.retain(|file, _| names.may_need(*file));
        })
    }

    /// Another disk with the same on it, for a look that changes nothing.
    pub fn copy(&self) -> Self {
        let copy = World {
            left: None,
            faults: Vec::new(),
            hook: None,
            trace: None,
            ..self.world().clone()
        };
        Self(Arc::new(Mutex::new(copy)))
    }

    fn succeed(&self, what: &str, change: impl FnOnce(&mut World)) -> Self {
        let mut world = self.world();
        let mut next = World {
            left: None,
            is_down: false,
            faults: Vec::new(),
            hook: None,
            ..world.clone()
        };
        world.is_down = true;
        change(&mut next);
        next.note(|| format!("=== {what} ==="));
        Self(Arc::new(Mutex::new(next)))
    }

    /// Stops the machine after so many more operations; `None`: not at all.
    pub fn stop_after(&self, operations: Option<u64>) {
        self.world().left = operations;
    }

    /// Whether the machine was stopped.
    pub fn is_down(&self) -> bool {
        self.world().is_down
    }

    /// Makes one operation of that kind fail, after `others` more of it.
    pub fn fail(&self, kind: Kind, others: u64) {
        self.world().faults.push((kind, others));
    }

    /// Withdraws planned faults that did not happen yet.
    pub fn heal(&self) {
        self.world().faults.clear();
    }

    /// Whether everything succeeds from now on.
    pub fn is_well(&self) -> bool {
        let world = self.world();
        world.faults.is_empty() && world.left.is_none() && !world.is_down
    }

    /// Sets how many bytes there are; room that is taken stays taken.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.world().capacity = bytes;
    }

    /// Sets what is called before each operation.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.world().hook = hook;
    }

    /// How many operations failed by plan.
    pub fn failures(&self) -> u64 {
        self.world().failures
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.world().operations
    }

    /// Bytes that files take, reserved room included.
    pub fn used(&self) -> usize {
        self.world().used()
    }

    /// Begins to write down each operation.
    pub fn start_trace(&self) {
        self.world().trace = Some(Vec::new());
    }

    /// Adds a line of one's own to the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        self.world().note(line);
    }

    /// What was written down.
    pub fn trace(&self) -> Vec<String> {
        self.world().trace.clone().unwrap_or_default()
    }

    /// Names with folder, in order.
    pub fn names(&self) -> Vec<String> {
        let world = self.world();
        world.names.all().map(|(name, _)| name.to_owned()).collect()
    }

    /// Bytes of the files whose names begin so.
    pub fn size_of(&self, prefix: &str) -> usize {
        let world = self.world();
        let files = world.names.all();
        let files = files.filter(|(name, _)| name.starts_with(prefix));
        files.map(|(_, file)| world.files[&file].len()).sum()
    }

    /// What a file holds as programs see it.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let world = self.world();
        let file = world.names.get(name).expect("the file is there");
        world.files[&file].bytes().to_owned()
    }

    /// Puts a file on the disk, durable, in place of the one of that name.
    pub fn plant(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let mut world = self.world();
        let file = world.next_file;
        world.next_file += 1;
        world
            .files
            .insert(file, Content::on_disk(bytes.as_ref().to_vec()));
        world.names.make(name, file);
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        world.names.sync(folder);
        world.folders.insert(folder.to_owned());
    }

    /// Turns a bit of a file round, for good.
    pub fn flip(&self, name: &str, offset: usize, bit: u8) {
        let mut world = self.world();
        let file = world.names.get(name).expect("the file is there");
        let content = world.files.get_mut(&file).expect("files have bytes");
        content.flip(offset, bit);
        world.note(|| format!("flipped bit {bit} of {name} at {offset}"));
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock()
    }

    /// Begins an operation: whether it is to fail.
    fn begin(
        &self,
        kind: Kind,
        name: &str,
        what: impl FnOnce() -> String,
    ) -> io::Result<(MutexGuard<'_, World>, bool)> {
        let hook = self.world().hook.clone();
        if let Some(hook) = hook {
            hook(kind, name);
        }
        let mut world = self.world();
        if world.left == Some(0) && !world.is_down {
            world.is_down = true;
            world.note(|| "--- the machine stops ---".to_owned());
        }
        if world.is_down {
            return Err(io::Error::other("the machine is down"));
        }
        world.left = world.left.map(|left| left - 1);
        world.operations += 1;
        let fails = world.takes_fault(kind);
        world.failures += u64::from(fails);
        let mark = if fails { " FAILS" } else { "" };
        let number = world.operations;
        world.note(|| format!("{number} {kind:?} {name}{}{mark}", what()));
        Ok((world, fails))
    }

    /// Begins an operation that does nothing when it fails.
    fn begin_whole(
        &self,
        kind: Kind,
        name: &str,
        what: impl FnOnce() -> String,
    ) -> io::Result<MutexGuard<'_, World>> {
        match self.begin(kind, name, what)? {
            (_, true) => Err(broken()),
            (world, false) => Ok(world),
        }
    }
}

impl Debug for SimDisk {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("SimDisk")
    }
}

impl World {
    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(line());
        }
    }

    fn used(&self) -> usize {
        let files: BTreeSet<_> = self.names.all().map(|(_, file)| file).collect();
        files.iter().map(|file| self.files[file].allocated()).sum()
    }

    fn free(&self) -> usize {
        self.capacity
            .map_or(1 << 40, |capacity| capacity.saturating_sub(self.used()))
    }

    /// Whether the operation that begins is one that was planned to fail.
    fn takes_fault(&mut self, kind: Kind) -> bool {
        let mut fails = false;
        self.faults.retain_mut(|(of, others)| {
            if *of != kind {
                return true;
            }
            if *others == 0 {
                fails = true;
                return false;
            }
            *others -= 1;
            true
        });
        fails
    }

    fn require(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).ok_or(io::ErrorKind::NotFound.into())
    }

    fn require_folder_of(&self, name: &str) -> io::Result<()> {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        if self.folders.contains(folder) {
            return Ok(());
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn content(&mut self, file: u64) -> &mut Content {
        let content = self.files.get_mut(&file);
        content.expect("files stay while they may be read")
    }
}

impl Storage for SimDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<Listed>> {
        let mut world = self.begin_whole(Kind::List, folder, String::new)?;
        let found = world.names.of_folder(folder);
        let found = found.map(|(name, file)| Listed {
            name: name.to_owned(),
            length: world.files[&file].len() as u64,
        });
        let mut found: Vec<_> = found.collect();
        world.random.shuffle(&mut found);
        Ok(found)
    }

    fn make_folder(&self, folder: &str) -> io::Result<()> {
        let mut world = self.begin_whole(Kind::MakeFolder, folder, String::new)?;
        world.folders.insert(folder.to_owned());
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StoredFile>> {
        let world = self.begin_whole(Kind::Open, name, String::new)?;
        let file = world.require(name)?;
        Ok(Arc::new(self.handle(file, name)))
    }

    fn create(&self, name: &str, reserve: u64) -> io::Result<Arc<dyn StoredFile>> {
        let mut world = self.begin_whole(Kind::Create, name, || format!(" of {reserve}"))?;
        world.require_folder_of(name)?;
        if world.names.get(name).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let reserve = usize::try_from(reserve).expect("a small file");
        if reserve.next_multiple_of(PAGE) > world.free() {
            world.note(|| "no room".to_owned());
            return Err(full());
        }
        let file = world.next_file;
        world.next_file += 1;
        world.files.insert(file, Content::new(reserve));
        world.names.make(name, file);
        Ok(Arc::new(self.handle(file, name)))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.begin_whole(Kind::Link, from, || format!(" as {to}"))?;
        let file = world.require(from)?;
        world.require_folder_of(to)?;
        if world.names.get(to).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        world.names.make(to, file);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut world = self.begin_whole(Kind::Rename, from, || format!(" to {to}"))?;
        let file = world.require(from)?;
        world.require_folder_of(to)?;
        world.names.rename(from, to, file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut world = self.begin_whole(Kind::Remove, name, String::new)?;
        if let Some(file) = world.names.get(name) {
            world.names.remove(name, file);
        }
        Ok(())
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        let mut world = self.begin_whole(Kind::SyncFolder, folder, String::new)?;
        world.names.sync(folder);
        Ok(())
    }

    fn free(&self) -> io::Result<u64> {
        let world = self.begin_whole(Kind::Free, "", String::new)?;
        Ok(world.free() as u64)
    }
}

impl SimDisk {
    fn handle(&self, file: u64, name: &str) -> SimFile {
        SimFile {
            disk: self.clone(),
            file,
            name: name.to_owned(),
        }
    }
}

/// An open file.
#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    file: u64,
    /// The name under which it was opened, for the trace.
    name: String,
}

impl SimFile {
    fn begin(
        &self,
        kind: Kind,
        what: impl FnOnce() -> String,
    ) -> io::Result<(MutexGuard<'_, World>, bool)> {
        self.disk.begin(kind, &self.name, what)
    }

    fn begin_whole(
        &self,
        kind: Kind,
        what: impl FnOnce() -> String,
    ) -> io::Result<MutexGuard<'_, World>> {
        self.disk.begin_whole(kind, &self.name, what)
    }
}

impl StoredFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut world = self.begin_whole(Kind::Length, String::new)?;
        Ok(world.content(self.file).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let what = || format!(" {offset}+{}", buffer.len());
        let mut world = self.begin_whole(Kind::Read, what)?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(world.content(self.file).read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let what = || format!(" {offset}+{}", bytes.len());
        let (mut world, fails) = self.begin(Kind::Write, what)?;
        let offset = usize::try_from(offset).expect("a small file");
        let missing = world.content(self.file).missing(offset, bytes.len()) * PAGE;
        let is_full = missing > world.free();
        let written = if fails || is_full {
            world.random.usize(..=bytes.len()) / PAGE * PAGE
        } else {
            bytes.len()
        };
        // A part that needs no more room than there is.
        let needs = world.content(self.file).missing(offset, written) * PAGE;
        let written = if needs > world.free() { 0 } else { written };
        let mut random = world.random.clone();
        let content = world.content(self.file);
        content.write(&bytes[..written], offset, &mut random);
        world.random = random;
        match (fails, is_full) {
            (true, _) => Err(broken()),
            (_, true) => {
                world.note(|| format!("no room; wrote {written}"));
                Err(full())
            }
            _ => Ok(()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        let (mut world, fails) = self.begin(Kind::Sync, String::new)?;
        if !fails {
            world.content(self.file).sync();
            return Ok(());
        }
        let mut random = world.random.clone();
        world.content(self.file).fail_to_sync(&mut random);
        world.random = random;
        Err(broken())
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        let mut world = self.begin_whole(Kind::Cut, || format!(" to {length}"))?;
        let length = usize::try_from(length).expect("a small file");
        world.content(self.file).cut(length);
        Ok(())
    }
}
