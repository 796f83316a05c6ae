//! What a request asks for, by its method and path.

use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

use super::failure::Failure;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Takes documents, those that name no index for this one.
    Bulk { index: Option<String> },
    /// Takes a document, if `creates` only one that is not there yet.
    Document {
        index: String,
        id: Option<String>,
        creates: bool,
    },
    /// A question that clients ask before they send anything.
    Question(Question),
    /// Asks for something that is not there.
    Absent { kind: &'static str, name: String },
    /// Sets something up that the server is asked to keep.
    Setup { index: Option<String> },
}

/// A question about the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Server,
    License,
    Features,
    Nodes,
    Health,
    Settings,
    Lifecycle,
    Refresh,
    /// A list in which nothing is, in this form.
    Empty(&'static str),
    /// A table without rows.
    Table,
}

const READ: &str = "GET, HEAD";
const WRITE: &str = "POST, PUT";
const STORED: &str = "GET, HEAD, POST, PUT";

/// What the request asks for.
///
/// # Errors
/// The path is none that is answered, or does not have the method.
pub(super) fn route(method: &Method, path: &str) -> Result<Route, Failure> {
    let decoded: Result<Vec<_>, _> = path
        .split('/')
        .filter(|key| !key.is_empty())
        .map(|key| percent_decode_str(key).decode_utf8())
        .collect();
    let unknown = || {
        let reason = format!(
            "no handler found for uri [{path}] and method [{method}]: Millpond takes documents (_bulk, _doc, _create), answers what \
             clients ask before they send any, and keeps nothing"
        );
        Failure::new(StatusCode::NOT_FOUND, "no_handler_found_exception", reason)
    };
    let keys = decoded.map_err(|_| unknown())?;
    let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
    let asked = Asked { method, path };
    if let Some(route) = documents(&asked, &keys).or_else(|| server(&asked, &keys)) {
        return route;
    }
    stored(&asked, &keys).unwrap_or_else(|| Err(unknown()))
}

struct Asked<'a> {
    method: &'a Method,
    path: &'a str,
}

impl Asked<'_> {
    fn reads(&self) -> bool {
        matches!(*self.method, Method::GET | Method::HEAD)
    }

    fn writes(&self) -> bool {
        matches!(*self.method, Method::POST | Method::PUT)
    }

    fn not_allowed(&self, allowed: &'static str) -> Failure {
        let (path, method) = (self.path, self.method);
        let reason = format!(
            "Incorrect HTTP method for uri [{path}] and method [{method}], allowed: [{allowed}]"
        );
        Failure::method(reason, allowed)
    }

    /// The route if the request writes.
    fn to_write(&self, route: Route) -> Result<Route, Failure> {
        match self.writes() {
            true => Ok(route),
            false => Err(self.not_allowed(WRITE)),
        }
    }

    fn question(&self, question: Question) -> Result<Route, Failure> {
        match self.reads() {
            true => Ok(Route::Question(question)),
            false => Err(self.not_allowed(READ)),
        }
    }
}

/// Whether a key is the name of an index, and no function of the server.
fn is_index(key: &str) -> bool {
    !key.starts_with('_')
}

/// What takes documents.
fn documents(asked: &Asked<'_>, keys: &[&str]) -> Option<Result<Route, Failure>> {
    let document = |index: &str, id: Option<&str>, creates| Route::Document {
        index: index.to_owned(),
        id: id.map(str::to_owned),
        creates,
    };
    Some(match keys {
        ["_bulk"] => asked.to_write(Route::Bulk { index: None }),
        // With a type between them, as clients of Elasticsearch 6 and 7 do.
        [index, "_bulk"] | [index, _, "_bulk"] if is_index(index) => {
            let index = Some((*index).to_owned());
            asked.to_write(Route::Bulk { index })
        }
        [index, "_doc"] if is_index(index) => match *asked.method {
            Method::POST => Ok(document(index, None, false)),
            _ => Err(asked.not_allowed("POST")),
        },
        [index, "_doc", id] if is_index(index) => asked.to_write(document(index, Some(id), false)),
        [index, "_create", id] if is_index(index) => {
            asked.to_write(document(index, Some(id), true))
        }
        _ => return None,
    })
}

/// Questions about the server.
fn server(asked: &Asked<'_>, keys: &[&str]) -> Option<Result<Route, Failure>> {
    Some(match keys {
        [] => asked.question(Question::Server),
        ["_license"] | ["_xpack", "license"] => asked.question(Question::License),
        ["_xpack"] => asked.question(Question::Features),
        ["_nodes", ..] => asked.question(Question::Nodes),
        ["_cluster", "health", ..] => asked.question(Question::Health),
        ["_cluster", "settings"] => asked.question(Question::Settings),
        ["_ilm", "status"] => asked.question(Question::Lifecycle),
        ["_cat", "templates" | "indices" | "aliases" | "plugins", ..] => {
            asked.question(Question::Table)
        }
        ["_refresh"] | [_, "_refresh"] => Ok(Route::Question(Question::Refresh)),
        _ => return None,
    })
}

/// What clients set up, and ask for first.
fn stored(asked: &Asked<'_>, keys: &[&str]) -> Option<Result<Route, Failure>> {
    let (kind, name, empty) = match keys {
        ["_index_template", rest @ ..] => ("index template", rest, "{\"index_templates\":[]}"),
        ["_component_template", rest @ ..] => {
            ("component template", rest, "{\"component_templates\":[]}")
        }
        ["_data_stream", rest @ ..] => ("data stream", rest, "{\"data_streams\":[]}"),
        ["_template", rest @ ..] => ("template", rest, "{}"),
        ["_ilm", "policy", rest @ ..] => ("lifecycle policy", rest, "{}"),
        ["_ingest", "pipeline", rest @ ..] => ("ingest pipeline", rest, "{}"),
        ["_alias", rest @ ..] => ("alias", rest, "{}"),
        ["_aliases"] if asked.writes() => return Some(Ok(Route::Setup { index: None })),
        [index, "_alias" | "_mapping" | "_settings", ..] if is_index(index) => {
            ("index", &keys[..1], "{}")
        }
        [index] if is_index(index) => {
            let index = Some((*index).to_owned());
            return Some(match asked.writes() {
                true => Ok(Route::Setup { index }),
                false => absent(asked, "index", &keys.join("/")),
            });
        }
        _ => return None,
    };
    Some(match name {
        [] => asked.question(Question::Empty(empty)),
        _ if asked.writes() => Ok(Route::Setup { index: None }),
        name => absent(asked, kind, &name.join("/")),
    })
}

fn absent(asked: &Asked<'_>, kind: &'static str, name: &str) -> Result<Route, Failure> {
    match asked.reads() {
        true => Ok(Route::Absent {
            kind,
            name: name.to_owned(),
        }),
        false => Err(asked.not_allowed(STORED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_understood() {
        let document = |index: &str, id: Option<&str>, creates| Route::Document {
            index: index.into(),
            id: id.map(Into::into),
            creates,
        };
        let bulk = |index: Option<&str>| Route::Bulk {
            index: index.map(Into::into),
        };
        let absent = |kind, name: &str| Route::Absent {
            kind,
            name: name.into(),
        };
        let setup = |index: Option<&str>| Route::Setup {
            index: index.map(Into::into),
        };
        for (method, path, expected) in [
            (Method::POST, "/_bulk", bulk(None)),
            (Method::PUT, "/_bulk/", bulk(None)),
            (Method::POST, "/logs-a-b/_bulk", bulk(Some("logs-a-b"))),
            (Method::POST, "/a%2Fb/_bulk", bulk(Some("a/b"))),
            (Method::POST, "/logs/doc/_bulk", bulk(Some("logs"))),
            (Method::POST, "/x/_doc", document("x", None, false)),
            (
                Method::PUT,
                "/x/_doc/a%20b",
                document("x", Some("a b"), false),
            ),
            (Method::PUT, "/x/_create/1", document("x", Some("1"), true)),
            (Method::HEAD, "/", Route::Question(Question::Server)),
            (Method::GET, "/_license", Route::Question(Question::License)),
            (
                Method::GET,
                "/_nodes/_all/http",
                Route::Question(Question::Nodes),
            ),
            (
                Method::GET,
                "/_cat/templates/x",
                Route::Question(Question::Table),
            ),
            (
                Method::POST,
                "/x/_refresh",
                Route::Question(Question::Refresh),
            ),
            (
                Method::GET,
                "/_data_stream",
                Route::Question(Question::Empty("{\"data_streams\":[]}")),
            ),
            (
                Method::HEAD,
                "/_index_template/x",
                absent("index template", "x"),
            ),
            (
                Method::GET,
                "/_ilm/policy/x",
                absent("lifecycle policy", "x"),
            ),
            (Method::PUT, "/_ingest/pipeline/x", setup(None)),
            (Method::PUT, "/_data_stream/x", setup(None)),
            (
                Method::PUT,
                "/%3Cx-%7Bnow%2Fd%7D-000001%3E",
                setup(Some("<x-{now/d}-000001>")),
            ),
            (Method::HEAD, "/x", absent("index", "x")),
            (Method::PUT, "/x/_mapping", setup(None)),
            (Method::POST, "/_aliases", setup(None)),
        ] {
            assert_eq!(
                route(&method, path).expect(path),
                expected,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn what_is_not_answered_says_so() {
        for (method, path, status, part) in [
            (Method::GET, "/_bulk", 405, "allowed: [POST, PUT]"),
            (Method::PUT, "/x/_doc", 405, "allowed: [POST]"),
            (Method::POST, "/", 405, "allowed: [GET, HEAD]"),
            (Method::DELETE, "/x", 405, "allowed: [GET, HEAD, POST, PUT]"),
            (Method::DELETE, "/_ilm/policy/x", 405, "allowed: [GET, HEAD"),
            (Method::POST, "/x/_search", 404, "keeps nothing"),
            (Method::GET, "/_sql", 404, "uri [/_sql]"),
            (Method::POST, "/_x/_bulk", 404, "uri [/_x/_bulk]"),
            (Method::POST, "/%ff/_bulk", 404, "uri [/%ff/_bulk]"),
            (Method::PUT, "/x/_doc/1/2", 404, "uri"),
        ] {
            let failure = route(&method, path).expect_err(path);
            assert_eq!(failure.status.as_u16(), status, "{method} {path}");
            assert!(failure.reason.contains(part), "{}", failure.reason);
        }
    }
}
