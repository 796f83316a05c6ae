//! The statistics in the form that Logstash has them, so that its monitors read them: `/`, `/_node`, `/_node/pipelines`,
//! `/_node/stats` and `/_node/stats/pipelines`.
//!
//! The version is that of the Logstash whose form this is; the program's own is in `millpond`. There is no Java virtual machine:
//! `jvm` has the memory of the process as its heap.

use component::Role;
use pipeline::view::PipelineView;
use pipeline::{OperatorReport, View};
use serde_json::{Map, Value, json};

use super::state::{ApiState, uuid};

/// The version of Logstash whose form this is.
const VERSION: &str = "8.19.0";

/// Milliseconds.
fn millis(time: std::time::Duration) -> u64 {
    time.as_millis() as u64
}

/// What every answer begins with.
pub fn root(state: &ApiState) -> Map<String, Value> {
    let fields = json!({
        "host": state.host,
        "version": VERSION,
        "http_address": state.address(),
        "id": state.id,
        "name": state.host,
        "ephemeral_id": state.ephemeral_id,
        "snapshot": false,
        "status": if state.readiness().is_ready() { "green" } else { "red" },
        "pipeline": { "workers": state.workers, "batch_size": BATCH_SIZE, "batch_delay": 0 },
        "millpond": { "version": env!("CARGO_PKG_VERSION") },
    });
    match fields {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Batches have as many events as are there, up to their size in bytes; this is what monitors show.
const BATCH_SIZE: u64 = 4096;

/// `/_node`, and with it `/_node/pipelines`.
pub fn node(state: &ApiState) -> Value {
    let mut all = root(state);
    let pipeline = |pipeline: &PipelineView| {
        let settings = json!({
            "ephemeral_id": ephemeral_id(state, &pipeline.name),
            "hash": state.configuration().version.hash,
            "workers": state.workers,
            "batch_size": BATCH_SIZE,
            "batch_delay": 0,
            "config_reload_automatic": false,
            "config_reload_interval": 0,
            "dead_letter_queue_enabled": pipeline.is_on_disk,
            "graph": { "graph": { "vertices": [], "edges": [] } },
        });
        (pipeline.name.clone(), settings)
    };
    let pipelines: Map<_, _> = state.view.look(false).iter().map(pipeline).collect();
    all.insert("pipelines".into(), pipelines.into());
    let stats = state.process.stats();
    let os = json!({
        "name": "Linux",
        "arch": std::env::consts::ARCH,
        "available_processors": std::thread::available_parallelism().map_or(1, usize::from),
    });
    all.insert("os".into(), os);
    let jvm = json!({ "pid": stats.pid, "version": "none", "vm_name": "none" });
    all.insert("jvm".into(), jvm);
    all.into()
}

/// `/_node/stats`.
pub fn stats(state: &ApiState) -> Value {
    let views = state.view.look(false);
    let mut all = root(state);
    all.insert("pipelines".into(), pipelines(state, &views));
    all.insert("events".into(), events(&views, true));
    all.insert("reloads".into(), state.reloads());
    let waiting: u64 = views.iter().map(|one| one.queue.events).sum();
    all.insert("queue".into(), json!({ "events_count": waiting }));
    let used = state.process.stats();
    let uptime = state.process.uptime();
    let percent = used.cpu_seconds / uptime.as_secs_f64().max(0.001) * 100.0;
    let process = json!({
        "open_file_descriptors": used.open_files,
        "peak_open_file_descriptors": used.open_files,
        "max_file_descriptors": used.open_files_max.unwrap_or(0),
        "mem": { "total_virtual_in_bytes": used.virtual_memory_bytes },
        "cpu": {
            "total_in_millis": (used.cpu_seconds * 1000.0) as u64,
            "percent": percent as u64,
            "load_average": load_average(),
        },
    });
    all.insert("process".into(), process);
    let resident = used.resident_memory_bytes;
    let jvm = json!({
        "threads": { "count": used.threads, "peak_count": used.threads },
        "mem": {
            "heap_used_percent": 0,
            "heap_used_in_bytes": resident,
            "heap_committed_in_bytes": resident,
            "heap_max_in_bytes": used.virtual_memory_bytes,
            "non_heap_used_in_bytes": 0,
            "non_heap_committed_in_bytes": 0,
        },
        "gc": { "collectors": {
            "young": { "collection_count": 0, "collection_time_in_millis": 0 },
            "old": { "collection_count": 0, "collection_time_in_millis": 0 },
        } },
        "uptime_in_millis": millis(uptime),
    });
    all.insert("jvm".into(), jvm);
    all.insert("os".into(), json!({}));
    all.into()
}

/// `/_node/stats/pipelines`.
pub fn pipeline_stats(state: &ApiState, view: &View) -> Value {
    let mut all = root(state);
    all.insert("pipelines".into(), pipelines(state, &view.look(false)));
    all.into()
}

fn pipelines(state: &ApiState, views: &[PipelineView]) -> Value {
    let one = |view: &PipelineView| (view.name.clone(), pipeline(state, view));
    let all: Map<_, _> = views.iter().map(one).collect();
    all.into()
}

fn pipeline(state: &ApiState, view: &PipelineView) -> Value {
    let of = |role| view.operators.iter().filter(move |it| it.role == role);
    let inputs = of(Role::Input).map(|operator| {
        let mut plugin = json!({
            "id": operator.name,
            "name": operator.name,
            "events": {
                "out": operator.counts.events_out,
                "queue_push_duration_in_millis": millis(operator.counts.wait),
            },
        });
        if let Some(open) = super::metrics::open_connections(operator) {
            plugin["current_connections"] = json!(open);
        }
        plugin
    });
    let plugin = |operator: &OperatorReport| {
        json!({
            "id": operator.name,
            "name": operator.name,
            "events": {
                "in": operator.counts.events_in,
                "out": operator.counts.events_out,
                "duration_in_millis": millis(operator.counts.busy),
            },
        })
    };
    let queue = view.queue;
    json!({
        "events": events(std::slice::from_ref(view), false),
        "plugins": {
            "inputs": inputs.collect::<Vec<_>>(),
            "codecs": [],
            "filters": of(Role::Processor).map(plugin).collect::<Vec<_>>(),
            "outputs": of(Role::Output).map(plugin).collect::<Vec<_>>(),
        },
        "reloads": state.reloads(),
        "queue": {
            "type": if view.is_on_disk { "persisted" } else { "memory" },
            "events_count": queue.events,
            "queue_size_in_bytes": queue.memory_bytes + queue.disk_bytes,
            "max_queue_size_in_bytes": 0,
        },
        "hash": state.configuration().version.hash,
        "ephemeral_id": ephemeral_id(state, &view.name),
        "vertices": [],
    })
}

/// The number of a pipeline in this process, as a UUID.
fn ephemeral_id(state: &ApiState, name: &str) -> String {
    uuid(&[&state.ephemeral_id, name])
}

/// What went through pipelines. `is_whole` leaves out those that others feed, whose events are theirs.
fn events(views: &[PipelineView], is_whole: bool) -> Value {
    let views = views.iter().filter(|view| !(is_whole && view.is_fed));
    let (mut came, mut gone, mut left) = (0, 0, 0);
    let (mut busy, mut pushing) = (0, 0);
    for view in views {
        gone += filtered(view);
        for operator in &view.operators {
            let counts = &operator.counts;
            match operator.role {
                Role::Input => {
                    came += counts.events_out;
                    pushing += millis(counts.wait);
                }
                Role::Processor => busy += millis(counts.busy),
                Role::Output => {
                    left += counts.events_out;
                    busy += millis(counts.busy);
                }
                Role::Queue => {}
            }
        }
    }
    json!({
        "in": came,
        "filtered": gone,
        "out": left,
        "duration_in_millis": busy,
        "queue_push_duration_in_millis": pushing,
    })
}

/// Events that came through the processors of the pipeline, those below outputs not counted.
fn filtered(view: &PipelineView) -> u64 {
    let operators = view.operators.iter();
    let mut own = operators
        .filter(|it| it.role == Role::Processor && !it.name.contains('/'))
        .map(|it| it.counts.events_out);
    let inputs = view.operators.iter().filter(|it| it.role == Role::Input);
    own.next_back()
        .unwrap_or_else(|| inputs.map(|it| it.counts.events_out).sum())
}

/// That of the machine.
fn load_average() -> Value {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut numbers = text
        .split_whitespace()
        .map(|number| number.parse().unwrap_or(0.0));
    let mut next = || numbers.next().unwrap_or(0.0_f64);
    json!({ "1m": next(), "5m": next(), "15m": next() })
}
