//! Headers and parameters of a request as fields of its events.

use std::ops::Range;
use std::sync::Arc;

use batch::{Batch, Cell, ColumnBuilder, Edit, Failures, FieldPath};
use http::HeaderMap;

/// The tag of events that cannot have the fields.
const TAG: &str = "_httpfieldfailure";

/// Which headers and parameters become fields.
#[derive(Debug)]
pub(super) struct Wanted {
    headers: Vec<String>,
    parameters: Vec<String>,
    /// The fields of the headers, then those of the parameters.
    paths: Vec<FieldPath>,
}

/// What a request says of them, in the same order.
pub(super) struct Given {
    wanted: Arc<Wanted>,
    values: Vec<Option<Box<str>>>,
}

impl Wanted {
    /// The headers as `http.headers.NAME`, the parameters as `http.query.NAME`; none where nothing is wanted.
    pub(super) fn new(headers: &[String], parameters: &[String]) -> Option<Arc<Self>> {
        let headers: Vec<_> = headers
            .iter()
            .map(|name| name.to_ascii_lowercase())
            .collect();
        let path = |kind: &str, name: &String| FieldPath::from_keys(["http", kind, name]);
        let of_headers = headers.iter().map(|name| path("headers", name));
        let of_parameters = parameters.iter().map(|name| path("query", name));
        let paths: Vec<_> = of_headers.chain(of_parameters).collect();
        (!paths.is_empty()).then(|| {
            Arc::new(Self {
                headers,
                parameters: parameters.to_vec(),
                paths,
            })
        })
    }

    /// What a request gives. Of a header or parameter that comes several times, the first counts.
    pub(super) fn given(self: &Arc<Self>, headers: &HeaderMap, query: Option<&str>) -> Arc<Given> {
        let header = |name: &String| {
            let value = headers.get(name.as_str())?;
            Some(String::from_utf8_lossy(value.as_bytes()).into())
        };
        let pairs = || form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let parameter = |wanted: &String| {
            let found = pairs().find(|(name, _)| name == wanted.as_str());
            found.map(|(_, value)| value.into())
        };
        let of_headers = self.headers.iter().map(header);
        let values = of_headers.chain(self.parameters.iter().map(parameter));
        Arc::new(Given {
            wanted: self.clone(),
            values: values.collect(),
        })
    }
}

/// Sets the fields of a batch whose rows come from these requests. Rows in which they have no place, because `http` is no
/// object there, are tagged.
pub(super) fn set(batch: &mut Batch, requests: &[(Range<usize>, Option<Arc<Given>>)]) {
    let Some(wanted) = requests
        .iter()
        .find_map(|(_, given)| given.as_ref())
        .map(|given| given.wanted.clone())
    else {
        return;
    };
    let mut edit = Edit::new();
    for (index, path) in wanted.paths.iter().enumerate() {
        let mut column = ColumnBuilder::new(batch.len());
        for (rows, given) in requests {
            let value = given
                .as_ref()
                .and_then(|given| given.values[index].as_deref());
            let Some(value) = value else { continue };
            let text = column.append(|out| out.extend_from_slice(value.as_bytes()));
            for row in rows.clone() {
                column.set(row, Cell::Text(text));
            }
        }
        if !column.is_untouched() {
            edit.set(path.clone(), column.finish());
        }
    }
    if edit.is_empty() {
        return;
    }
    let mut failures = Failures::none();
    failures.extend_refused(batch.apply(edit), &TAG.into());
    batch.mark_failed(&failures, false);
}
