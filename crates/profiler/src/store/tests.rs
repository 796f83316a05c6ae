use super::*;
use crate::cost::Rates;
use crate::filter::Filter;
use crate::profile::{Frame, SECOND_NS, Weight};
use crate::store::query::{Query, TableSum};
use crate::top::Group;

const MINUTE_NS: i64 = 60 * SECOND_NS as i64;
const HOUR_NS: i64 = 60 * MINUTE_NS;

/// A Monday in 2026.
const START_NS: i64 = 1_795_392_000 * SECOND_NS as i64;

fn at(ns: i64) -> SystemTime {
    std::time::UNIX_EPOCH + Duration::from_nanos(ns.unsigned_abs())
}

/// A minute's profile of a host.
fn minute(host: &str, start_ns: i64, samples: u64) -> Profile {
    let window = Window {
        start_ns,
        duration_ns: MINUTE_NS.unsigned_abs(),
    };
    let mut profile = Profile::new(window, 20.0);
    let stack = profile.stack([
        Frame::function("main", "/bin/a"),
        Frame::function("work", "/bin/a"),
    ]);
    let pid = (start_ns / MINUTE_NS).to_string();
    let labels = profile.labels(&[(label::HOST, host), (label::PID, &pid)]);
    let cpu_ns = samples * SECOND_NS / 20;
    profile.add(stack, labels, Weight { samples, cpu_ns });
    profile
}

/// Samples that the store has in all, by its files.
fn samples(store: &Store) -> u64 {
    let slices = store.slices(&(i64::MIN..i64::MAX)).unwrap();
    let (filter, mut sum) = (Filter::default(), TableSum::default());
    let query = Query {
        slices: &slices,
        filter: &filter,
        names: None,
    };
    query
        .tables(&Group::Function, |_, scanned| {
            sum.add(scanned, &Rates::X86_64);
        })
        .unwrap();
    assert_eq!(query.profile().unwrap().0.total(), sum.table().all);
    sum.table().all.samples
}

fn compact(store: &Store, now_ns: i64) -> compaction::Compacted {
    store
        .compact(at(now_ns), None, |_, profile| profile.clone())
        .unwrap()
}

#[test]
fn slices_become_hours_and_days() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("profiles")).unwrap();
    for minute_of in 0..150 {
        for host in ["web-1", "web-2"] {
            let start = START_NS + minute_of * MINUTE_NS;
            store.write(&minute(host, start, 2), "?").unwrap();
        }
    }
    assert_eq!(store.hosts().unwrap(), ["web-1", "web-2"]);
    assert_eq!(samples(&store), 600);
    let done = compact(&store, START_NS + 2 * HOUR_NS + 5 * MINUTE_NS);
    assert_eq!(
        (done.joined, done.made),
        (120, 2),
        "the second hour is too young"
    );
    let done = compact(&store, START_NS + 150 * MINUTE_NS);
    assert_eq!((done.joined, done.made), (120, 2));
    assert_eq!(store.slices_of("web-1").unwrap().len(), 2 + 30);
    assert_eq!(samples(&store), 600);
    // What comes late stays until the day is joined.
    store.write(&minute("web-1", START_NS, 5), "?").unwrap();
    compact(&store, START_NS + 12 * HOUR_NS);
    let late = store.slices_of("web-1").unwrap();
    assert_eq!(late.len(), 4);
    let done = compact(&store, START_NS + 49 * HOUR_NS);
    assert_eq!((done.made, done.damaged.len()), (2, 0));
    let days = store.slices_of("web-1").unwrap();
    assert_eq!(days.len(), 1);
    assert!(
        days[0].path.ends_with("20261123T000000.000Z+86400s.pb.gz"),
        "{days:?}"
    );
    assert_eq!(samples(&store), 605);
    let day = pprof::read(&fs::read(&days[0].path).unwrap()).unwrap();
    assert_eq!(day.len(), 1, "without process numbers it is one stack");
    assert_eq!(day.window.duration_ns, 150 * MINUTE_NS.unsigned_abs());
    let done = compact(&store, START_NS + 100 * HOUR_NS);
    assert_eq!((done.joined, done.made), (0, 0));
}

#[test]
fn an_interrupted_compaction_counts_everything_once() {
    let now = START_NS + 3 * HOUR_NS;
    let target = "20261123T000000.000Z+3600s.pb.gz";
    for interrupted_at in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        for minute_of in 0..10 {
            store
                .write(&minute("h", START_NS + minute_of * MINUTE_NS, 1), "?")
                .unwrap();
        }
        let host = folder.path().join("h");
        let parts = host.join(format!("{target}.parts"));
        let slices = store.slices_of("h").unwrap();
        fs::create_dir(&parts).unwrap();
        for slice in &slices[..if interrupted_at == 0 { 4 } else { 10 }] {
            fs::rename(&slice.path, parts.join(slice.path.file_name().unwrap())).unwrap();
        }
        if interrupted_at >= 2 {
            let mut whole = Profile::default();
            (0..10)
                .for_each(|of| whole.merge(&minute("h", START_NS + of * MINUTE_NS, 1), |_| true));
            fs::write(host.join(target), pprof::write(&whole)).unwrap();
        }
        if interrupted_at == 3 {
            fs::rename(&parts, host.join(format!(".joined-{target}"))).unwrap();
        }
        assert_eq!(samples(&store), 10, "{interrupted_at}");
        compact(&store, now);
        assert_eq!(samples(&store), 10, "{interrupted_at}");
        assert_eq!(store.slices_of("h").unwrap().len(), 1, "{interrupted_at}");
        // The file, and its table.
        assert_eq!(fs::read_dir(&host).unwrap().count(), 2, "{interrupted_at}");
    }
}

#[test]
fn damaged_files_are_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    store.write(&minute("h", START_NS, 1), "?").unwrap();
    let damaged = store
        .write(&minute("h", START_NS + MINUTE_NS, 1), "?")
        .unwrap();
    fs::write(&damaged[0], "no profile").unwrap();
    let done = compact(&store, START_NS + 3 * HOUR_NS);
    assert_eq!((done.joined, done.made, done.damaged.len()), (1, 1, 1));
    assert_eq!(samples(&store), 1);
    assert_eq!(fs::read(&done.damaged[0].0).unwrap(), b"no profile");
}

#[test]
fn what_is_old_or_too_much_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    for hour in 0..10 {
        for host in ["a", "b"] {
            store
                .write(&minute(host, START_NS + hour * HOUR_NS, 1), "?")
                .unwrap();
        }
    }
    let now = at(START_NS + 10 * HOUR_NS);
    let age = Duration::from_secs(5 * 3600);
    let expired = store.expire(now, Some(age), None).unwrap();
    assert_eq!(expired.files, 10);
    let slices = store.slices(&(i64::MIN..i64::MAX)).unwrap();
    let bytes: u64 = slices.iter().map(|slice| slice.bytes).sum();
    let expired = store.expire(now, None, Some(bytes - 1)).unwrap();
    assert_eq!(expired.files, 1, "one is enough");
    assert_eq!(
        store.expire(now, Some(age), Some(bytes)).unwrap(),
        Expired::default()
    );
    store.expire(at(i64::MAX), Some(age), None).unwrap();
    assert_eq!(store.hosts().unwrap(), [""; 0], "empty folders go");
}

#[test]
fn a_profile_of_several_hosts_is_a_file_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let mut profile = minute("a", START_NS, 1);
    profile.merge(&minute("b/c", START_NS, 2), |_| true);
    profile.merge(&minute("", START_NS, 4), |_| true);
    assert_eq!(store.write(&profile, "own").unwrap().len(), 3);
    assert_eq!(store.hosts().unwrap(), ["a", "b/c", "own"]);
    assert_eq!(samples(&store), 7);
    // The same once more was sent twice; others of the same time are further files.
    store.write(&profile, "own").unwrap();
    assert_eq!(samples(&store), 7);
    profile.merge(&minute("a", START_NS, 7), |_| true);
    store.write(&profile, "own").unwrap();
    assert_eq!(samples(&store), 7 + 8);
    let filter = Filter {
        labels: vec![("host".to_owned(), "b*".to_owned())],
        function: None,
    };
    let slices = store.slices(&(START_NS..START_NS + 1)).unwrap();
    let query = Query {
        slices: &slices,
        filter: &filter,
        names: None,
    };
    let mut sum = TableSum::default();
    query
        .tables(&Group::Function, |_, scanned| {
            sum.add(scanned, &Rates::X86_64);
        })
        .unwrap();
    assert_eq!(sum.table().all.samples, 2);
    assert_eq!(sum.window.duration_ns, MINUTE_NS.unsigned_abs());
    assert!(store.slices(&(0..START_NS)).unwrap().is_empty());
}

#[test]
fn several_processes_may_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for of in 0..20 {
                    let host = format!("h{writer}");
                    store
                        .write(&minute(&host, START_NS + of * MINUTE_NS, 1), "?")
                        .unwrap();
                }
            });
        }
        scope.spawn(|| (0..10).for_each(|_| drop(compact(&store, START_NS + 3 * HOUR_NS))));
    });
    assert_eq!(samples(&store), 80);
}

#[test]
fn folders_of_others_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("profiles")).unwrap();
    let other = store.folder().join("data");
    fs::create_dir(&other).unwrap();
    fs::write(other.join(".lock"), "precious").unwrap();
    compact(&store, START_NS);
    let kept = fs::read_to_string(other.join(".lock")).unwrap();
    assert_eq!(kept, "precious");
}

/// An hour of a host: one large stack, and many small ones of one function that is called from many places.
fn hour_of_many(host: &str, stacks: u64) -> Profile {
    let window = Window {
        start_ns: START_NS,
        duration_ns: HOUR_NS.unsigned_abs(),
    };
    let mut profile = Profile::new(window, 20.0);
    let mut add = |caller: String, thread: u64, samples| {
        let frames = ["main".to_owned(), caller, "malloc".to_owned()];
        let frames = frames.map(|name| Frame::function(name, "/bin/a"));
        let stack = profile.stack(frames);
        let thread = format!("worker-{thread}");
        let labels = [(label::HOST, host), (label::THREAD, &thread)];
        let (labels, cpu_ns) = (profile.labels(&labels), samples * SECOND_NS / 20);
        profile.add(stack, labels, Weight { samples, cpu_ns });
    };
    add("large".to_owned(), 0, 100 * small::PARTS);
    for number in 0..stacks {
        add(format!("caller-{host}-{number}"), number % 3, 1);
    }
    profile
}

#[test]
fn profiles_of_few_stacks_are_whole_and_those_of_many_are_bounded() {
    const STACKS: u64 = 200;
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let mut whole = Profile::default();
    for host in ["a", "b", "c", "d", "e"] {
        let profile = hour_of_many(host, STACKS);
        whole.merge(&profile, |_| true);
        store.write(&profile, host).unwrap();
    }
    let slices = store.slices(&(i64::MIN..i64::MAX)).unwrap();
    let by_thread = Filter {
        labels: vec![(label::THREAD.to_owned(), "worker-1".to_owned())],
        function: Some("caller".to_owned()),
    };
    let everything = Filter::default();
    for filter in [&everything, &by_thread] {
        let query = Query {
            slices: &slices,
            filter,
            names: None,
        };
        let taken = filter.part(&whole);
        let (all, _) = query.profile().unwrap();
        let lines = |profile: &Profile| {
            let threads = crate::collapsed::write(profile, &everything, Some(label::THREAD));
            (threads, profile.len())
        };
        assert_eq!(lines(&all), lines(&taken), "what fits is whole");
        assert_eq!(small::note(&[&all]), None);
        let (bounded, _) = query.profile_up_to(50).unwrap();
        assert_eq!(bounded.total(), taken.total());
        assert!(bounded.len() <= 50, "{}", bounded.len());
        let threads = crate::collapsed::write(&bounded, &everything, Some(label::THREAD));
        let has_threads = threads.contains("worker");
        assert_eq!(has_threads, filter == &by_thread, "{threads}");
        assert!(small::note(&[&bounded]).is_some_and(|note| note.contains("[small]")));
    }
}

#[test]
fn kinds_of_work_that_are_small_in_many_places_are_found_in_full() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    for host in ["a", "b"] {
        store.write(&hour_of_many(host, 10), host).unwrap();
    }
    let slices = store.slices(&(i64::MIN..i64::MAX)).unwrap();
    let filter = Filter {
        labels: Vec::new(),
        function: Some("caller".to_owned()),
    };
    let query = Query {
        slices: &slices,
        filter: &filter,
        names: None,
    };
    let mut sum = crate::advice::Summary::default();
    let of = |profile: &Profile| crate::advice::Summary::of(profile, &filter);
    query.profiles(of, |of| sum.add(of)).unwrap();
    let findings = sum.findings();
    assert_eq!(findings[0].rule.title, "Allocation");
    assert_eq!(findings[0].functions, [("malloc".to_owned(), 1.0)]);
}

#[test]
fn damaged_files_are_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    let minutes = [0, 1, 2].map(|index| minute("a", START_NS + index * MINUTE_NS, 5));
    let paths: Vec<PathBuf> = minutes
        .iter()
        .flat_map(|minute| store.write(minute, "a").unwrap())
        .collect();
    fs::write(&paths[1], b"\x1f\x8bno gzip").unwrap();
    let read = |wanted: &[usize]| {
        let mut slices = store.slices(&(i64::MIN..i64::MAX)).unwrap();
        slices.retain(|slice| wanted.iter().any(|index| slice.path == paths[*index]));
        let query = Query {
            slices: &slices,
            filter: &Filter::default(),
            names: None,
        };
        let mut samples = 0;
        let unread = query.tables(&Group::Function, |_, scanned| {
            samples += scanned.table.all.samples;
        });
        let graph = query.profile().map(|(profile, _)| profile.total().samples);
        (unread, samples, graph)
    };
    let (unread, samples, graph) = read(&[0, 1, 2]);
    let unread = unread.unwrap();
    assert_eq!((samples, graph.unwrap()), (10, 10));
    assert_eq!(unread.len(), 1);
    assert_eq!(unread[0].path, paths[1]);
    let (unread, ..) = read(&[1]);
    assert_eq!(unread.unwrap_err().path, paths[1], "nothing can be read");
}

/// The rows and the sum of a table of all files, in order.
fn table_of(slices: &[Slice], filter: &Filter, group: &Group) -> String {
    let mut sum = TableSum::default();
    let query = Query {
        slices,
        filter,
        names: None,
    };
    let add = |_: &Slice, scanned| sum.add(scanned, &Rates::X86_64);
    query.tables(group, add).unwrap();
    format!("{:?} {:?} {:?}", sum.table(), sum.window, sum.lost)
}

#[test]
fn compacted_files_have_tables_that_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    for host in ["a", "b"] {
        store.write(&hour_of_many(host, 20), host).unwrap();
    }
    let all = || store.slices(&(i64::MIN..i64::MAX)).unwrap();
    let without = all();
    assert!(without.iter().all(|slice| slice.table.is_none()));
    compact(&store, START_NS + 2 * HOUR_NS);
    let with = all();
    assert!(with.iter().all(|slice| slice.table.is_some()));
    let of = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let host_and_thread = [of("host", "*"), of("thread", "worker-1")].concat();
    for labels in [Vec::new(), of("host", "b"), host_and_thread] {
        for function in [None, Some("caller-a-1".to_owned())] {
            for group in ["", "host", "thread"] {
                let group = match group {
                    "" => Group::Function,
                    name => Group::Label(name.to_owned()),
                };
                let (labels, function) = (labels.clone(), function.clone());
                let filter = Filter { labels, function };
                let expected = table_of(&without, &filter, &group);
                assert_eq!(
                    table_of(&with, &filter, &group),
                    expected,
                    "{filter:?} {group:?}"
                );
            }
        }
    }
}

#[test]
fn tables_are_used_and_go_with_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path());
    store.write(&hour_of_many("a", 20), "a").unwrap();
    compact(&store, START_NS + 2 * HOUR_NS);
    let slices = store.slices(&(i64::MIN..i64::MAX)).unwrap();
    let (filter, group) = (Filter::default(), Group::Function);
    let expected = table_of(&slices, &filter, &group);
    let (table, _) = slices[0].table.clone().unwrap();
    // What is damaged does not count.
    fs::write(&table, "nothing").unwrap();
    assert_eq!(table_of(&slices, &filter, &group), expected);
    // What was put in the place of a table is believed: so it was read.
    let other = pprof::write_table(&hour_of_many("a", 5), |_| true);
    fs::write(&table, other).unwrap();
    assert_ne!(table_of(&slices, &filter, &group), expected);
    // A file of that name and of another size is another file.
    fs::write(&slices[0].path, pprof::write(&hour_of_many("a", 7))).unwrap();
    let changed = store.slices_of("a").unwrap();
    assert_eq!(changed[0].table, None);
    compact(&store, START_NS + 2 * HOUR_NS);
    assert!(!table.exists());
    let slices = store.slices_of("a").unwrap();
    let (table, bytes) = slices[0].table.clone().unwrap();
    let expired = store
        .expire(at(START_NS + 9 * HOUR_NS), Some(Duration::ZERO), None)
        .unwrap();
    assert_eq!((expired.files, expired.bytes), (1, slices[0].bytes + bytes));
    assert!(!table.exists());
    assert!(store.hosts().unwrap().is_empty());
}
