//! What is known of processes: names, threads, mapped files, labels.
//!
//! What processes did before sampling began, or while records were lost, is read from `/proc` when they are sampled first; afterwards the kernel's records
//! say what changes. So processes that have ended before anybody looks are known as well, as long as they began while samples were taken.
//!
//! Labels that only `/proc` knows (container, service) are those of the process that started it where a process ends before it is looked at.
//!
//! # Limits
//! What is known of a process is forgotten when it ends. Where the record of that was lost, it is forgotten when twice as many processes are known as were
//! there when it was last looked for such (at least [`KNOWN_MIN`]).

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::binaries::{Binaries, Binary};
use super::events::{Mapped, Registers, threads_of};
use super::runtimes::Runtime;
use super::unwind::{Code, CodeKind, Ending, Memory, Unwound};
use super::v8::layout::Layout;
use crate::profile::Frame;

/// So many processes may be known before those are looked for that have ended unseen.
const KNOWN_MIN: usize = 512;

/// How often all processes are looked up again at most, where records get lost.
const DOUBT: Duration = Duration::from_secs(10);

/// Code that a process can run.
#[derive(Debug, Clone)]
struct Mapping {
    end: u64,
    file_offset: u64,
    name: Arc<str>,
    /// None where no file holds it: code that was made while the program runs.
    binary: Option<Arc<Binary>>,
    /// That of which the file is.
    runtime: Option<Runtime>,
}

impl Mapping {
    fn place(&self) -> CodeKind {
        match (&self.binary, self.runtime) {
            (None, _) => CodeKind::Made,
            (Some(_), Some(Runtime::Python(_))) => CodeKind::Python,
            (Some(_), _) => CodeKind::File,
        }
    }
}

/// One process.
#[derive(Clone, Default)]
pub struct Process {
    /// Its name.
    pub name: String,
    /// The container's id; empty where it is in none.
    pub container: String,
    /// The service; empty where it is of none.
    pub service: String,
    threads: HashMap<u32, String>,
    maps: BTreeMap<u64, Mapping>,
    code: Code,
    runtime: Option<Runtime>,
    /// The file that has V8.
    v8: Option<Arc<Binary>>,
    /// Whether `/proc` was read, or needs not be.
    is_known: bool,
}

impl Process {
    /// The name of a thread; that of the process where it has none of its own.
    pub fn thread(&self, tid: u32) -> &str {
        self.threads.get(&tid).unwrap_or(&self.name)
    }

    fn map(&mut self, start: u64, mapping: Mapping) {
        let end = mapping.end;
        // V8 changes the rights of parts of its code all the time.
        let is_known = mapping.binary.is_none()
            && self.mapping(start).is_some_and(|(_, around)| {
                around.binary.is_none() && around.name == mapping.name && around.end >= end
            });
        if end <= start || is_known {
            return;
        }
        let before = self.maps.range(..end).rev();
        let overlaps = before.take_while(|(_, other)| other.end > start);
        let covered: Vec<u64> = overlaps.map(|(other, _)| *other).collect();
        for other in covered {
            self.cover(other, start, end);
        }
        self.insert(start, mapping);
    }

    /// Takes away the part of a mapping that another one covers; what is before and behind stays.
    fn cover(&mut self, start: u64, from: u64, to: u64) {
        let Some(mapping) = self.maps.remove(&start) else {
            return;
        };
        self.code.remove(start);
        if mapping.end > to {
            let behind = Mapping {
                file_offset: mapping.file_offset.saturating_add(to - start),
                ..mapping.clone()
            };
            self.insert(to, behind);
        }
        if start < from {
            let end = from;
            self.insert(start, Mapping { end, ..mapping });
        }
    }

    fn insert(&mut self, start: u64, mapping: Mapping) {
        let end = mapping.end;
        if let Some(binary) = &mapping.binary {
            let address = binary.address_of(mapping.file_offset);
            let bias = start.wrapping_sub(address);
            self.code.add(&mapping.name, start, end, bias, binary);
            if binary.v8.is_some() {
                self.v8 = Some(Arc::clone(binary));
            }
        }
        if let Some(runtime) = mapping.runtime {
            let known = self.runtime.unwrap_or(runtime);
            self.runtime = Some(known.or(mapping.runtime));
        }
        self.maps.insert(start, mapping);
    }

    /// The runtime that it runs.
    pub fn runtime(&self) -> Option<Runtime> {
        self.runtime
    }

    fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.maps.range(..=address).next_back()?;
        (address < mapping.end).then_some((*start, mapping))
    }

    /// Where V8 keeps names of functions, if one of its files has it.
    pub fn v8(&self) -> Option<&Layout> {
        self.v8.as_ref()?.v8.as_ref()
    }

    /// Whether code was made while the program runs.
    pub fn is_made(&self, address: u64) -> bool {
        let mapping = self.mapping(address);
        mapping.is_some_and(|(_, mapping)| mapping.binary.is_none())
    }

    /// Whether code is V8's, made while it was built. It has no tables and always keeps frame pointers.
    pub fn is_of_v8(&self, address: u64) -> bool {
        self.mapping(address).is_some_and(|(start, mapping)| {
            let binary = mapping.binary.as_ref();
            binary.is_some_and(|binary| {
                let address = binary.address_of(address - start + mapping.file_offset);
                let layout = binary.v8.as_ref();
                layout.is_some_and(|layout| layout.builtins.contains(&address))
            })
        })
    }

    /// Appends the frames of a stack, from the innermost on.
    pub fn unwind(
        &self,
        registers: Registers,
        stack: &[u8],
        memory: &mut Memory,
        frames: &mut Vec<Unwound>,
    ) -> Ending {
        let place = |address| Some(self.mapping(address)?.1.place());
        self.code.unwind(registers, stack, memory, place, frames)
    }

    /// What an address is: a place in a file, or code that was made while the program runs.
    pub fn frame(&self, address: u64) -> Frame<'_> {
        let Some((start, mapping)) = self.mapping(address) else {
            return Frame {
                binary: "[unknown]".into(),
                address,
                ..Frame::default()
            };
        };
        match &mapping.binary {
            Some(binary) => Frame {
                binary: (&*mapping.name).into(),
                build_id: (&*binary.build_id).into(),
                address: binary.address_of(address - start + mapping.file_offset),
                ..Frame::default()
            },
            None => Frame {
                binary: self.runtime.map_or("[jit]", Runtime::binary).into(),
                address,
                ..Frame::default()
            },
        }
    }
}

/// All processes that were sampled or began meanwhile.
pub struct Processes {
    by_pid: HashMap<u32, Process>,
    binaries: Binaries,
    /// Those that have ended: the last samples of a round may still be of them.
    ended: Vec<u32>,
    /// With how many known processes it is looked for those that have ended unseen.
    look_at: usize,
    /// Whether records were lost since what is known was doubted last.
    has_lost: bool,
    last_doubt: Option<Instant>,
}

impl Default for Processes {
    fn default() -> Self {
        Self {
            by_pid: HashMap::new(),
            binaries: Binaries::default(),
            ended: Vec::new(),
            look_at: KNOWN_MIN,
            has_lost: false,
            last_doubt: None,
        }
    }
}

impl Processes {
    /// A process; from `/proc` where nothing is known of it.
    pub fn get(&mut self, pid: u32) -> &Process {
        let process = self.by_pid.entry(pid).or_default();
        if !process.is_known {
            process.is_known = true;
            read(pid, process, &mut self.binaries);
        }
        process
    }

    /// A process can run more code.
    pub fn map(&mut self, mapped: &Mapped) {
        let process = self.by_pid.entry(mapped.pid).or_default();
        map(mapped, process, &mut self.binaries);
    }

    /// A thread has a new name; with `is_exec` its process runs another program.
    pub fn name(&mut self, pid: u32, tid: u32, name: String, is_exec: bool) {
        let process = self.by_pid.entry(pid).or_default();
        if is_exec {
            // All of its code is told from here on.
            *process = Process {
                container: std::mem::take(&mut process.container),
                service: std::mem::take(&mut process.service),
                is_known: true,
                ..Process::default()
            };
            labels(pid, process);
        }
        if pid == tid {
            process.name.clone_from(&name);
        }
        process.threads.insert(tid, name);
    }

    /// A process began as a copy of another one, or one of its threads.
    pub fn begin(&mut self, pid: u32, parent: u32, tid: u32) {
        if pid == parent {
            if let Some(process) = self.by_pid.get_mut(&pid) {
                let name = process.thread(parent).to_owned();
                process.threads.insert(tid, name);
            }
            return;
        }
        // The number may be that of a process that has just ended.
        self.ended.retain(|ended| *ended != pid);
        // The copy may have ended, or run another program, by the time when it is sampled.
        let mut copy = self.get(parent).clone();
        copy.threads.clear();
        self.by_pid.insert(pid, copy);
    }

    /// A thread ended, and its process where it is the first.
    pub fn end(&mut self, pid: u32, tid: u32) {
        if pid == tid {
            self.ended.push(pid);
        } else if let Some(process) = self.by_pid.get_mut(&pid) {
            process.threads.remove(&tid);
        }
    }

    /// Forgets processes that had ended when this was called last, and tells which.
    pub fn forget(&mut self) -> Vec<u32> {
        self.look_again();
        let mut gone = std::mem::take(&mut self.ended);
        // The first thread of a process may end before the others.
        gone.retain(|pid| !has_threads(*pid));
        for pid in &gone {
            self.by_pid.remove(pid);
        }
        if self.by_pid.len() >= self.look_at {
            let is_gone = |pid: &&u32| fs::metadata(format!("/proc/{pid}")).is_err();
            self.ended = self.by_pid.keys().filter(is_gone).copied().collect();
            let living = self.by_pid.len() - self.ended.len();
            self.look_at = KNOWN_MIN.max(2 * living);
        }
        gone
    }

    /// Records were lost: what is known of processes is looked up again when they are sampled next, soon.
    pub fn doubt(&mut self) {
        self.has_lost = true;
    }

    fn look_again(&mut self) {
        let is_soon = self.last_doubt.is_some_and(|last| last.elapsed() < DOUBT);
        if self.has_lost && !is_soon {
            self.has_lost = false;
            self.last_doubt = Some(Instant::now());
            for process in self.by_pid.values_mut() {
                process.is_known = false;
            }
        }
    }

    /// A process of a runtime, without anything else that is known of it.
    #[cfg(test)]
    pub fn of_runtime(&mut self, pid: u32, name: &str, runtime: Runtime) -> &Process {
        let process = self.by_pid.entry(pid).or_default();
        *process = Process {
            name: name.to_owned(),
            runtime: Some(runtime),
            is_known: true,
            ..Process::default()
        };
        process
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.by_pid.len()
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }
}

fn map(mapped: &Mapped, process: &mut Process, binaries: &mut Binaries) {
    let binary = match &*mapped.path {
        "[vdso]" => Some(binaries.vdso()),
        path if path.starts_with('/') && !is_made(path) => Some(binaries.get(&file(mapped))),
        _ => None,
    };
    let path = mapped.path.trim_end_matches(DELETED);
    let mapping = Mapping {
        end: mapped.start.saturating_add(mapped.bytes),
        file_offset: mapped.file_offset,
        runtime: binary.as_ref().and_then(|_| Runtime::of(path)),
        name: path.into(),
        binary,
    };
    process.map(mapped.start, mapping);
}

/// Whether a mapping holds code that was made while the program runs, in spite of its name.
fn is_made(path: &str) -> bool {
    ["//anon", "/dev/zero", "/memfd:", "/anon_hugepage", "/SYSV"]
        .iter()
        .any(|made| path.starts_with(made))
}

/// What the kernel adds to the name of a file that was deleted, or replaced by another one, since it was mapped.
const DELETED: &str = " (deleted)";

/// Where a mapped file can be read.
fn file(mapped: &Mapped) -> PathBuf {
    let Mapped { pid, start, .. } = mapped;
    if !mapped.path.ends_with(DELETED) {
        return inside(*pid, &mapped.path);
    }
    // The file that has its name now has other tables and functions. Needs rights that sampling of other processes needs anyway.
    let end = start.saturating_add(mapped.bytes);
    PathBuf::from(format!("/proc/{pid}/map_files/{start:x}-{end:x}"))
}

/// The path of a file as the process sees it; the plain path once it is gone.
fn inside(pid: u32, path: &str) -> PathBuf {
    let inside = PathBuf::from(format!("/proc/{pid}/root{path}"));
    match inside.exists() {
        true => inside,
        false => Path::new(path).to_owned(),
    }
}

/// Reads what `/proc` knows of a process. What cannot be read stays unknown.
fn read(pid: u32, process: &mut Process, binaries: &mut Binaries) {
    let name = |path: String| fs::read_to_string(path).map(|text| text.trim_end().to_owned());
    if let Ok(name) = name(format!("/proc/{pid}/comm")) {
        process.name = name;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let tid = thread.file_name().to_str().and_then(|tid| tid.parse().ok());
        if let (Some(tid), Ok(name)) = (
            tid,
            name(format!("/proc/{pid}/task/{}/comm", tid.unwrap_or(0))),
        ) {
            process.threads.entry(tid).or_insert(name);
        }
    }
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    for line in String::from_utf8_lossy(&maps).lines() {
        let Some(mapped) = mapped(pid, line) else {
            continue;
        };
        // What a record has told is newer.
        if !process.maps.contains_key(&mapped.start) {
            map(&mapped, process, binaries);
        }
    }
    labels(pid, process);
}

/// A line of `/proc/PID/maps`, where it is of code.
fn mapped(pid: u32, line: &str) -> Option<Mapped> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()?.contains('x');
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let path = fields.nth(2).unwrap_or_default().trim_start();
    is_code.then(|| Mapped {
        pid,
        start,
        bytes: end.saturating_sub(start),
        file_offset,
        path: match path {
            "" => "//anon".to_owned(),
            path => path.to_owned(),
        },
    })
}

/// Whether other threads than the first one run.
fn has_threads(pid: u32) -> bool {
    let is_other = |thread: &i32| u32::try_from(*thread) != Ok(pid);
    threads_of(pid).is_ok_and(|threads| threads.iter().any(is_other))
}

/// Reads which container and service a process is of; where it has ended, they stay what they are.
fn labels(pid: u32, process: &mut Process) {
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
        return;
    };
    process.container = container(&groups).unwrap_or_default().to_owned();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let named = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(b"OTEL_SERVICE_NAME="));
    let named = named.map(|name| String::from_utf8_lossy(name).into_owned());
    let service = named.or_else(|| service(&groups).map(str::to_owned));
    process.service = service.unwrap_or_default();
}

/// The container in a list of control groups: 64 hexadecimal digits, as Docker, containerd, CRI-O and Podman name them.
fn container(groups: &str) -> Option<&str> {
    let is_id =
        |piece: &&str| piece.len() == 64 && piece.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups
        .lines()
        .flat_map(|line| line.split(['/', '-', ':', '.']))
        .find(is_id)
}

/// The systemd unit in a list of control groups, without `.service`.
fn service(groups: &str) -> Option<&str> {
    let pieces = groups.lines().flat_map(|line| line.rsplit('/'));
    let mut services = pieces.filter_map(|piece| piece.strip_suffix(".service"));
    services.find(|service| !service.starts_with("user@"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let mut processes = Processes::default();
        let process = processes.get(std::process::id());
        assert!(!process.name.is_empty());
        let here = this_process_is_known as *const () as usize as u64;
        let frame = process.frame(here);
        let path = std::env::current_exe().unwrap();
        assert_eq!(&*frame.binary, path.to_str().unwrap());
        assert!(process.maps.values().any(|map| &*map.name == "[vdso]"));
        assert_eq!(&*process.frame(1).binary, "[unknown]");
    }

    #[test]
    fn programs_that_were_replaced_keep_their_tables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::copy("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path)
            .arg("100")
            .spawn()
            .unwrap();
        // It sleeps once everything is mapped; the linker divides mappings before.
        let sleeps = || {
            let state = format!("/proc/{}/syscall", child.id());
            let sleep = libc::SYS_clock_nanosleep.to_string();
            fs::read_to_string(state).is_ok_and(|call| call.split(' ').next() == Some(&*sleep))
        };
        while !sleeps() {
            std::thread::sleep(Duration::from_millis(1));
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another one").unwrap();
        let expected = Binary::read(Path::new("/bin/sleep")).unwrap().build_id;
        let mut processes = Processes::default();
        let process = processes.get(child.id());
        let mut maps = process.maps.values();
        let mapping = maps.find(|mapping| Some(&*mapping.name) == path.to_str());
        let found = mapping.and_then(|mapping| mapping.binary.clone());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!expected.is_empty());
        assert_eq!(found.unwrap().build_id, expected);
    }

    /// Process 0 maps a file from its beginning.
    fn map(processes: &mut Processes, start: u64, bytes: u64, path: &str) {
        processes.map(&Mapped {
            pid: 0,
            start,
            bytes,
            file_offset: 0,
            path: path.to_owned(),
        });
    }

    #[test]
    fn a_later_mapping_replaces_what_it_covers() {
        let mut processes = Processes::default();
        let mut map = |start, bytes, path| map(&mut processes, start, bytes, path);
        map(0x1000, 0x1000, "//anon");
        map(0x3000, 0x1000, "/nowhere/a");
        map(0x1800, 0x1900, "/nowhere/b (deleted)");
        map(0x9000, 0, "/nowhere/c");
        let process = &processes.by_pid[&0];
        let starts: Vec<u64> = process.maps.keys().copied().collect();
        assert_eq!(starts, [0x1000, 0x1800, 0x3100]);
        assert_eq!(&*process.frame(0x17ff).binary, "[jit]");
        assert_eq!(&*process.frame(0x1800).binary, "/nowhere/b");
        assert_eq!(process.frame(0x1810).address, 0x10);
        assert_eq!(&*process.frame(0x3100).binary, "/nowhere/a");
        assert_eq!(process.frame(0x3110).address, 0x110);
        assert_eq!(&*process.frame(0x4000).binary, "[unknown]");
    }

    #[test]
    fn code_around_a_file_in_the_middle_stays() {
        let mut processes = Processes::default();
        let mut map = |start, bytes, path| map(&mut processes, start, bytes, path);
        map(0x1000, 0x9000, "//anon");
        map(0x4000, 0x1000, "/nowhere/node");
        // Nothing new.
        map(0x2000, 0x1000, "//anon");
        let process = &processes.by_pid[&0];
        let ranges: Vec<_> = process
            .maps
            .iter()
            .map(|(at, map)| (*at, map.end))
            .collect();
        assert_eq!(
            ranges,
            [(0x1000, 0x4000), (0x4000, 0x5000), (0x5000, 0xa000)]
        );
        assert!(process.is_made(0x3fff) && process.is_made(0x5000));
        assert_eq!(&*process.frame(0x4000).binary, "/nowhere/node");
    }

    #[test]
    fn processes_begin_as_copies_and_end() {
        let mut processes = Processes::default();
        processes.name(70_000_000, 70_000_000, "a".to_owned(), true);
        processes.begin(70_000_001, 70_000_000, 70_000_001);
        processes.begin(70_000_001, 70_000_001, 70_000_002);
        processes.name(70_000_001, 70_000_002, "worker".to_owned(), false);
        let copy = processes.get(70_000_001);
        assert_eq!(
            (&*copy.name, copy.thread(70_000_002), copy.thread(1)),
            ("a", "worker", "a")
        );
        processes.end(70_000_001, 70_000_002);
        processes.end(70_000_001, 70_000_001);
        assert_eq!(processes.len(), 2);
        processes.forget();
        assert_eq!(processes.len(), 1);
    }

    #[test]
    fn short_processes_keep_the_labels_of_those_that_start_them() {
        let mut processes = Processes::default();
        processes.by_pid.entry(70_000_000).or_default().container = "c".to_owned();
        processes.begin(70_000_001, 70_000_000, 70_000_001);
        processes.name(70_000_001, 70_000_001, "b".to_owned(), true);
        let process = processes.get(70_000_001);
        assert_eq!((&*process.name, &*process.container), ("b", "c"));
    }

    #[test]
    fn processes_whose_end_was_lost_are_forgotten() {
        let mut processes = Processes::default();
        processes.get(std::process::id());
        let mut most = 0;
        for pid in 70_000_000..70_010_000 {
            processes.name(pid, pid, "a".to_owned(), true);
            processes.forget();
            most = most.max(processes.len());
        }
        assert!(most <= KNOWN_MIN + 1, "{most}");
        assert!(processes.by_pid.contains_key(&std::process::id()));
    }

    #[test]
    fn ten_thousand_short_processes_leave_nothing() {
        let mut processes = Processes::default();
        let program = std::env::current_exe().unwrap();
        let own = std::process::id();
        let mut short = |pid: u32| {
            processes.begin(pid, own, pid);
            processes.name(pid, pid, "short".to_owned(), true);
            for (start, path) in [(1, program.to_str().unwrap()), (2, "//anon"), (3, "[vdso]")] {
                processes.map(&Mapped {
                    pid,
                    start: start << 32,
                    bytes: 1 << 20,
                    file_offset: 0,
                    path: path.to_owned(),
                });
            }
            assert_eq!(processes.get(pid).name, "short");
            processes.end(pid, pid);
            processes.forget();
            assert!(processes.len() <= 2);
        };
        // The first have to learn what all of them run.
        (70_000_000..70_000_100).for_each(&mut short);
        let used = allocation_counter::measure(|| (70_000_100..70_010_000).for_each(&mut short));
        assert!(used.bytes_current.abs() < 64 << 10, "{used:?}");
        assert!(used.bytes_max < 16 << 20, "{used:?}");
    }

    #[test]
    fn what_is_known_is_read_again_where_records_were_lost() {
        let mut processes = Processes::default();
        let pid = std::process::id();
        processes.name(pid, pid, "stale".to_owned(), true);
        assert_eq!(&*processes.get(pid).name, "stale");
        processes.doubt();
        processes.forget();
        let process = processes.get(pid);
        assert!(process.name != "stale" && !process.maps.is_empty());
    }

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f12-7f34 r-xp 0000a000 fe:00 123    /usr/lib/a b.so";
        let map = mapped(1, line).unwrap();
        assert_eq!(
            (map.start, map.bytes, map.file_offset),
            (0x7f12, 0x22, 0xa000)
        );
        assert_eq!(map.path, "/usr/lib/a b.so");
        assert_eq!(
            mapped(1, "7f12-7f34 rwxp 0 00:00 0").unwrap().path,
            "//anon"
        );
        assert_eq!(mapped(1, "7f12-7f34 rw-p 0 00:00 0"), None);
        assert_eq!(mapped(1, "x"), None);
    }

    #[test]
    fn control_groups_name_containers_and_services() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let docker = format!("0::/system.slice/docker-{id}.scope\n");
        let kubernetes =
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n");
        for (groups, expected) in [
            (&*docker, (Some(id), None)),
            (&*kubernetes, (Some(id), None)),
            ("0::/system.slice/nginx.service\n", (None, Some("nginx"))),
            (
                "0::/user.slice/user@1000.service/app.slice/x.service\n",
                (None, Some("x")),
            ),
            ("0::/\n", (None, None)),
        ] {
            assert_eq!((container(groups), service(groups)), expected, "{groups}");
        }
    }
}
