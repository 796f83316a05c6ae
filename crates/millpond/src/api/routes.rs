//! The paths of the API: one table, from which requests are answered and the OpenAPI description is made.

use http::header::ALLOW;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::configuration::{self, PipelineConfiguration};
use super::exposition::Format;
use super::reply::{Answer, Failure, Request, Route, answer, described, failed, json, plain};
use super::state::ApiState;
use super::stats::{FILES_SHOWN, PipelineStats, Readiness, Stats};
use super::tap::{self, TapAnswer, TapKey};
use super::{logstash, openapi, profile};

/// That the process is alive.
#[derive(Serialize, JsonSchema)]
struct Health {
    /// `alive`.
    status: &'static str,
}

/// An object in the form of Logstash's API.
#[derive(JsonSchema)]
struct LogstashNode {
    /// The name of the machine.
    #[expect(dead_code, reason = "describes what is built of parts")]
    host: String,
    /// The version of Logstash whose form this is.
    #[expect(dead_code, reason = "describes what is built of parts")]
    version: String,
    /// The address of the API.
    #[expect(dead_code, reason = "describes what is built of parts")]
    http_address: String,
}

macro_rules! handler {
    ($function:expr) => {
        |state, request| Box::pin(async move { $function(state, request) })
    };
}

/// Every path, in the order of the description.
pub static ROUTES: &[Route] = &[
    Route {
        method: Method::GET,
        path: "/health",
        summary: "Whether the process is alive.",
        query: &[],
        answers: &[described::<Health>(200, "It is alive.")],
        is_open: true,
        handle: handler!(health),
    },
    Route {
        method: Method::GET,
        path: "/ready",
        summary: "Whether every pipeline has started, no output has failed, and events can be stored.",
        query: &[],
        answers: &[
            described::<Readiness>(200, "It is ready."),
            described::<Readiness>(503, "It is not ready, for these reasons."),
        ],
        is_open: true,
        handle: handler!(ready),
    },
    Route {
        method: Method::GET,
        path: "/metrics",
        summary: "Metrics in the Prometheus text format 0.0.4, or as OpenMetrics 1.0 where the client accepts that.",
        query: &[],
        answers: &[plain("The metrics.", "text/plain")],
        is_open: false,
        handle: handler!(metrics),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/stats",
        summary: "What the process, its pipelines, operators, queues, outputs, connections and files are at.",
        query: &[(
            "files",
            true,
            "How many files of each pipeline are listed: those furthest behind. Default: 1000.",
        )],
        answers: &[described::<Stats>(200, "The statistics.")],
        is_open: false,
        handle: handler!(stats),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/pipelines",
        summary: "The configuration in force, without its secrets.",
        query: &[],
        answers: &[described::<PipelinesAnswer>(200, "The configuration.")],
        is_open: false,
        handle: handler!(pipelines),
    },
    Route {
        method: Method::POST,
        path: "/api/v1/reload",
        summary: "Reads the configuration again and puts it in force, as SIGHUP does.",
        query: &[],
        answers: &[
            described::<Reloaded>(200, "It is in force."),
            described::<Failure>(409, "It is wrong: the one before stays in force."),
            described::<Failure>(404, "This run has no file to read again."),
        ],
        is_open: false,
        handle: |state, _| Box::pin(reload(state)),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/profile",
        summary: "The processor time of the process itself, as pprof.",
        query: &[(
            "seconds",
            true,
            "How far back it goes: from 1 to 86400. Default: 600.",
        )],
        answers: &[
            plain(
                "The profile, compressed with gzip.",
                "application/octet-stream",
            ),
            described::<Failure>(404, "There is none, for this reason."),
        ],
        is_open: false,
        handle: |state, request| Box::pin(profile::answer(state, request)),
    },
    Route {
        method: Method::POST,
        path: tap::PATH,
        summary: "Opens a tap: some of the events that pass a point of a pipeline. It is closed when nobody asks it for 30 seconds.",
        query: &[
            ("pipeline", false, "The pipeline."),
            (
                "operator",
                false,
                "The input, processor or output, such as `grok`, or `output:file` where several have a name. Default: all processors together.",
            ),
            (
                "show",
                false,
                "`before`, `after` or `both`: the form of the events. Default: `after`.",
            ),
            (
                "if",
                false,
                "An expression of at most 16,384 bytes: only events for which it holds are shown. It gets 1 % of the time; events that pass meanwhile are not looked at. It is evaluated on events as they leave the point with `show=after`, otherwise as they come to it.",
            ),
            (
                "rate",
                true,
                "The most events a second: from 1 to 1000. Default: 10.",
            ),
            (
                "metadata",
                false,
                "`true`: with what is readable under `@metadata`. Default: `false`.",
            ),
        ],
        answers: &[
            described::<TapKey>(201, "It is open."),
            described::<Failure>(400, "A parameter is wrong or missing."),
            described::<Failure>(404, "There is no such pipeline or operator."),
            described::<Failure>(409, "The pipeline has ended."),
            described::<Failure>(429, "16 taps are open."),
        ],
        is_open: false,
        handle: handler!(tap::open),
    },
    Route {
        method: Method::GET,
        path: tap::PATH,
        summary: "The events of a tap that have not arrived.",
        query: &[
            ("tap", false, "The tap, as it was named when it was opened."),
            (
                "after",
                true,
                "The number of the last event that has arrived. Default: 0.",
            ),
            (
                "wait",
                true,
                "How many seconds the answer may wait for events: at most 20. Default: 0.",
            ),
        ],
        answers: &[
            described::<TapAnswer>(200, "The events."),
            described::<Failure>(400, "A parameter is wrong."),
            described::<Failure>(404, "There is no such tap."),
        ],
        is_open: false,
        handle: |state, request| Box::pin(tap::poll(state, request)),
    },
    Route {
        method: Method::DELETE,
        path: tap::PATH,
        summary: "Closes a tap.",
        query: &[("tap", false, "The tap.")],
        answers: &[
            described::<TapKey>(200, "It is closed."),
            described::<Failure>(404, "There is no such tap."),
        ],
        is_open: false,
        handle: handler!(tap::close),
    },
    Route {
        method: Method::GET,
        path: "/api/v1/openapi.json",
        summary: "This description.",
        query: &[],
        answers: &[described::<Value>(200, "The description.")],
        is_open: false,
        handle: handler!(description),
    },
    Route {
        method: Method::GET,
        path: "/",
        summary: "What answers here, in the form of Logstash.",
        query: &[],
        answers: &[described::<LogstashNode>(200, "The process.")],
        is_open: false,
        handle: handler!(|state, _| json(StatusCode::OK, &logstash::root(state))),
    },
    Route {
        method: Method::GET,
        path: "/_node",
        summary: "The process and its pipelines, in the form of Logstash.",
        query: &[],
        answers: &[described::<LogstashNode>(200, "The process.")],
        is_open: false,
        handle: handler!(|state, _| json(StatusCode::OK, &logstash::node(state))),
    },
    Route {
        method: Method::GET,
        path: "/_node/pipelines",
        summary: "The pipelines, in the form of Logstash.",
        query: &[],
        answers: &[described::<LogstashNode>(200, "The pipelines.")],
        is_open: false,
        handle: handler!(|state, _| json(StatusCode::OK, &logstash::node(state))),
    },
    Route {
        method: Method::GET,
        path: "/_node/stats",
        summary: "The statistics of the process, in the form of Logstash.",
        query: &[],
        answers: &[described::<LogstashNode>(200, "The statistics.")],
        is_open: false,
        handle: handler!(|state, _| json(StatusCode::OK, &logstash::stats(state))),
    },
    Route {
        method: Method::GET,
        path: "/_node/stats/pipelines",
        summary: "The statistics of the pipelines, in the form of Logstash.",
        query: &[],
        answers: &[described::<LogstashNode>(200, "The statistics.")],
        is_open: false,
        handle: handler!(|state: &ApiState, _| {
            json(
                StatusCode::OK,
                &logstash::pipeline_stats(state, &state.view),
            )
        }),
    },
];

/// The route of a request.
///
/// # Errors
/// There is none: the answer that says so.
pub fn find(head: &Parts) -> Result<&'static Route, Box<Answer>> {
    let path = head.uri.path();
    let method = match head.method {
        Method::HEAD => &Method::GET,
        ref method => method,
    };
    let of_path = || ROUTES.iter().filter(|route| route.path == path);
    if let Some(route) = of_path().find(|route| route.method == method) {
        return Ok(route);
    }
    let allowed: Vec<&str> = of_path().map(|route| route.method.as_str()).collect();
    if allowed.is_empty() {
        let text = "there is nothing at this path; /api/v1/openapi.json describes what there is";
        return Err(Box::new(failed(StatusCode::NOT_FOUND, text)));
    }
    let allowed = allowed.join(", ");
    let text = format!("only {allowed} is answered here");
    let mut answer = failed(StatusCode::METHOD_NOT_ALLOWED, &text);
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        answer.headers_mut().insert(ALLOW, allowed);
    }
    Err(Box::new(answer))
}

/// The configuration in force.
#[derive(Serialize, JsonSchema)]
struct PipelinesAnswer {
    /// Which one it is.
    configuration: super::stats::ConfigurationVersion,
    /// What stands at its top beside the pipelines.
    settings: Value,
    /// The pipelines.
    pipelines: Vec<PipelineConfiguration>,
}

fn health(_: &ApiState, _: &Request) -> Answer {
    json(StatusCode::OK, &Health { status: "alive" })
}

fn ready(state: &ApiState, request: &Request) -> Answer {
    let mut readiness = state.readiness();
    let status = match readiness.is_ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    if !request.is_known {
        readiness.reasons.clear();
    }
    json(status, &readiness)
}

fn metrics(state: &ApiState, request: &Request) -> Answer {
    let format = Format::accepted(&request.head.headers);
    let text = state.metrics.text(format, &state.view, &state.process);
    answer(StatusCode::OK, format.content_type(), text)
}

fn stats(state: &ApiState, request: &Request) -> Answer {
    let files = match request.number("files", FILES_SHOWN) {
        Ok(files) => files,
        Err(answer) => return *answer,
    };
    let pipelines = state.view.look(files > 0).into_iter();
    let stats = Stats {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: state.host.clone(),
        started: super::stats::time(state.process.started()),
        uptime_seconds: state.process.uptime().as_secs_f64(),
        status: state.status().word().to_owned(),
        configuration: state.configuration().version.clone(),
        process: state.process.stats(),
        pipelines: pipelines
            .map(|pipeline| {
                let windows = state.watching.of(&pipeline.name);
                PipelineStats::of(pipeline, windows, files)
            })
            .collect(),
    };
    json(StatusCode::OK, &stats)
}

fn pipelines(state: &ApiState, _: &Request) -> Answer {
    let configuration::Configuration {
        version,
        settings,
        pipelines,
    } = &*state.configuration();
    let all = PipelinesAnswer {
        configuration: version.clone(),
        settings: settings.clone(),
        pipelines: pipelines.clone(),
    };
    json(StatusCode::OK, &all)
}

/// What became of the pipelines.
#[derive(Serialize, JsonSchema)]
struct Reloaded {
    /// The configuration in force.
    configuration: super::stats::ConfigurationVersion,
    /// Pipelines that were replaced.
    changed: Vec<String>,
    /// Pipelines that were started.
    added: Vec<String>,
    /// Pipelines that were stopped.
    removed: Vec<String>,
    /// Pipelines that went on untouched.
    unchanged: Vec<String>,
}

async fn reload(state: &ApiState) -> Answer {
    let Some(reloading) = state.reload("request of the API") else {
        let text = "only the configuration of a service that has started can be reloaded";
        return failed(StatusCode::NOT_FOUND, text);
    };
    match reloading.await {
        Ok(changes) => json(
            StatusCode::OK,
            &Reloaded {
                configuration: state.configuration().version.clone(),
                changed: changes.changed,
                added: changes.added,
                removed: changes.removed,
                unchanged: changes.unchanged,
            },
        ),
        Err(error) => failed(StatusCode::CONFLICT, &format!("{error:#}")),
    }
}

fn description(_: &ApiState, _: &Request) -> Answer {
    json(StatusCode::OK, &openapi::description(ROUTES))
}
