//! The limits of disk queues: full queues, full disks, budgets, later versions.

use std::time::{Duration, Instant};

use crate::queue_outlet::Outlet;
use crate::queue_place::{QueuePlace, SMALL, folder_size, on_small_disk, with_backlog};
use crate::running::{Service, append, numbered};

#[test]
fn a_stop_with_a_full_queue_is_a_clean_one() {
    let mut place = QueuePlace::new(&format!("{SMALL}, max_bytes: 1MiB"));
    place.outputs = vec!["one"];
    place.one.down();
    let written = place.write(0..60_000);
    let mut service = place.follow();
    place.until_acknowledged(&mut service, 10_000);
    // The input waits for room, which an output that is down does not give.
    let said = service.stop();
    assert!(said.contains("events remain in the disk queue"), "{said}");
    place.one.up();
    place.deliver().expect(0);
    place.one.expect_once(&written);
}

#[test]
fn the_smallest_queue_drops_the_oldest_too() {
    let mut place = QueuePlace::new(&format!(
        "{SMALL}, max_bytes: 256KiB, when_full: drop_oldest"
    ));
    place.one.down();
    place.write(0..60_000);
    let mut service = place.follow();
    service.until("all to be done with", || place.done() == 60_000);
    place.one.up();
    service.until("the newest", || {
        place.one.content().contains("app line 59999\"")
    });
    service.stop();
}

#[test]
fn a_queue_of_a_newer_version_is_refused_and_left_alone() {
    let (place, _) = with_backlog(SMALL, 100);
    let segment = place.segments().pop().expect("a segment");
    let mut bytes = std::fs::read(&segment).expect("read");
    // Magic, CRC, version; the CRC covers what comes after it in the first page.
    bytes[12] += 100;
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[12..4096]);
    bytes[8..12].copy_from_slice(&crc.sum().to_le_bytes());
    std::fs::write(&segment, &bytes).expect("written");
    let list = || {
        let mut names: Vec<_> = std::fs::read_dir(&place.folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    };
    let before = list();
    let ended = place.deliver().expect(2);
    assert!(
        ended.err.contains("later version of Millpond") && ended.err.contains(&segment),
        "{}",
        ended.err
    );
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    assert_eq!(std::fs::read(&segment).expect("read"), bytes);
    assert_eq!(list(), before);
    assert_eq!(place.one.count(), 0);
}

#[test]
fn a_disk_that_the_queue_itself_fills_is_emptied_by_the_outputs() {
    for min_free_bytes in ["0", "1MiB"] {
        let settings =
            format!("segment_bytes: 64KiB, cache_bytes: 64KiB, min_free_bytes: {min_free_bytes}");
        let Some((disk, mut place, mut service)) = on_small_disk("2m", &settings) else {
            return;
        };
        let written = numbered("app", 0..200) + &place.write(200..200_000);
        service.until_said("queue: events cannot be stored");
        let before = place.acknowledged();
        assert!(before < 200_000, "{before}");
        if min_free_bytes != "0" {
            let said = service.said();
            assert!(said.contains("min_free_bytes"), "{said}");
            // To a segment: of the disk's 2 MiB the queue has 1 MiB.
            assert!(place.size() <= (1 << 20) + (64 << 10), "{}", place.size());
        }
        service.until("the first output", || place.one.count() >= before);
        place.two.up();
        service.until("everything", || {
            place.two.count() == 200_000 && place.one.count() == 200_000
        });
        let said = service.stop();
        let (pauses, again) = (
            said.matches("events cannot be stored").count(),
            said.matches("events can be stored again").count(),
        );
        assert_eq!(pauses, again, "{said}");
        place.one.expect_once(&written);
        place.two.expect_once(&written);
        drop(disk);
    }
}

#[test]
fn pipelines_share_a_disk_budget() {
    let place = QueuePlace::new(SMALL);
    let names = ["left", "right"];
    let mut outlets = names.map(|name| Outlet::new(place.place.folder.path(name)));
    outlets.iter_mut().for_each(Outlet::down);
    let pipeline = |(name, outlet): (&str, &Outlet)| {
        format!(
            "  {name}:
    input:
      file: {{ paths: ['{log}'] }}
    queue:
      disk: {{ {SMALL} }}
    processors:
      - set: {{ fields: {{ id: '@metadata.id' }} }}
    output:
      file: {{ path: '{out}' }}
    retry: {{ initial: 20ms, max: 100ms }}
",
            log = place.place.log(name),
            out = outlet.path().display(),
        )
    };
    let pipelines: String = names.into_iter().zip(&outlets).map(pipeline).collect();
    let yaml = format!(
        "data_dir: '{}'\nmax_disk_bytes: 1MiB\npipelines:\n{pipelines}",
        place.place.data
    );
    let yaml = place.place.folder.write("both.yaml", yaml);
    for name in names {
        append(&place.place.log(name), &numbered(name, 0..60_000));
    }
    let mut service = Service::start(&place.place.folder, &["run", &yaml]);
    let folder = |name: &str| format!("{}/queue/{name}", place.place.data);
    let taken = || {
        names
            .map(folder)
            .iter()
            .map(|folder| folder_size(folder))
            .sum::<u64>()
    };
    let mut most = 0;
    let mut since = Instant::now();
    // The inputs wait when the budget is exhausted: then nothing grows any more. Both may wait in the middle of their first
    // chunk, with nothing acknowledged.
    service.until("the inputs to wait", || {
        let now = taken();
        if now > most || most <= 1 << 19 {
            (most, since) = (most.max(now), Instant::now());
        }
        since.elapsed() > Duration::from_secs(3)
    });
    assert!(place.acknowledged() < 120_000);
    outlets.iter_mut().for_each(Outlet::up);
    service.until("everything", || {
        most = most.max(taken());
        outlets.iter().all(|outlet| outlet.count() == 60_000)
    });
    service.stop();
    // A queue that holds nothing takes a batch, whatever the others take.
    assert!(most <= (1 << 20) + (300 << 10), "{most}");
    for (name, outlet) in names.into_iter().zip(&outlets) {
        outlet.expect_once(&numbered(name, 0..60_000));
    }
}

#[test]
fn a_full_share_of_the_disk_is_given_back_where_processors_remember() {
    let place = QueuePlace::new(SMALL).place;
    let (log, out) = (place.log("app"), place.folder.path("out"));
    let yaml = format!(
        "
data_dir: '{}'
max_disk_bytes: 1MiB
pipelines:
  app:
    input:
      file: {{ paths: ['{log}'] }}
    queue:
      disk: {{ when_full: drop_newest }}
    processors:
      - dedupe: {{ max_keys: 100 }}
    output:
      file: {{ path: '{out}' }}
",
        place.data
    );
    let yaml = place.folder.write("app.yaml", yaml);
    append(&log, &numbered("app", 0..60_000));
    let mut service = Service::start(&place.folder, &["run", &yaml]);
    let passed = || std::fs::read_to_string(&out).map_or(0, |text| text.lines().count());
    let (mut before, mut since) = (0, Instant::now());
    service.until("some, of which the rest is dropped", || {
        let now = passed();
        if now > before || now == 0 {
            (before, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(2)
    });
    append(&log, &numbered("app", 60_000..80_000));
    service.until("later events", || passed() >= before + 10_000);
    service.stop();
}

#[test]
fn a_queue_whose_outputs_keep_up_keeps_to_its_size() {
    let mut place = QueuePlace::new(&format!("{SMALL}, max_bytes: 512KiB"));
    place.outputs = vec!["one"];
    place.write(0..400_000);
    let mut service = place.follow();
    let mut most = 0;
    service.until("everything", || {
        most = most.max(place.size());
        most > 0 && place.one.count() == 400_000
    });
    service.stop();
    assert!(most <= 512 << 10, "{most}");
}
