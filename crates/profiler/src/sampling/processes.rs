//! What is known of processes: names, threads, mapped files, labels.
//!
//! What processes did before sampling began, or while records were lost, is read from `/proc` when they are sampled first; afterwards the kernel's records
//! say what changes. So processes that have ended before anybody looks are known as well, as long as they began while samples were taken.
//!
//! # Limits
//! Labels that only `/proc` knows (container, service) are missing for processes that end before they are sampled and looked at.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::binaries::{Binaries, Binary};
use super::events::{Mapped, Registers};
use super::runtimes::Runtime;
use super::unwind::{Code, CodeKind, Ending, Memory, Unwound};
use super::v8::layout::Layout;
use crate::profile::Frame;

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
#[derive(Default)]
pub struct Processes {
    by_pid: HashMap<u32, Process>,
    binaries: Binaries,
    /// Those that have ended: the last samples of a round may still be of them.
    ended: Vec<u32>,
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
        let copy = self.by_pid.get(&parent).cloned();
        let mut copy = copy.unwrap_or_default();
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

    /// Forgets processes that had ended when this was called last.
    pub fn forget(&mut self) {
        for pid in std::mem::take(&mut self.ended) {
            self.by_pid.remove(&pid);
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
        path if path.starts_with('/') && !is_made(path) => {
            Some(binaries.get(&inside(mapped.pid, path)))
        }
        _ => None,
    };
    let path = mapped.path.trim_end_matches(" (deleted)");
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

/// Reads which container and service a process is of.
fn labels(pid: u32, process: &mut Process) {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    if let Some(container) = container(&groups) {
        process.container = container.to_owned();
    }
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let named = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(b"OTEL_SERVICE_NAME="));
    let named = named.map(|name| String::from_utf8_lossy(name).into_owned());
    if let Some(service) = named.or_else(|| service(&groups).map(str::to_owned)) {
        process.service = service;
    }
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
    fn a_later_mapping_replaces_what_it_covers() {
        let mut processes = Processes::default();
        let mut map = |start, bytes, path: &str| {
            processes.map(&Mapped {
                pid: 0,
                start,
                bytes,
                file_offset: 0,
                path: path.to_owned(),
            });
        };
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
        let mut map = |start, bytes, path: &str| {
            processes.map(&Mapped {
                pid: 0,
                start,
                bytes,
                file_offset: 0,
                path: path.to_owned(),
            });
        };
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
