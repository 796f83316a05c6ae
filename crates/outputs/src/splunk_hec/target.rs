//! Which events share a request.
//!
//! Events for different indices never do: the server refuses a request with an event for an index that its token may not
//! write to. What Splunk stores beside events of `/services/collector/raw` stands in the address, so that it is
//! the same for a whole request.

use std::sync::Arc;

use batch::{Batch, Bitmap, FieldRead};
use expr::{Absent, Template};
use net::client::reqwest::Url;

use crate::hosts::below;
use crate::partition::{Group, partition};

/// The longest text after the `?`, in bytes.
const QUERY_BYTES_MAX: usize = 4000;

/// Where requests go.
#[derive(Debug)]
pub enum Target {
    /// To `/services/collector/event`, apart where events choose the index.
    Event(Option<Template>),
    /// To `/services/collector/raw`, with these parameters.
    Raw(Vec<(&'static str, Template)>),
}

impl Target {
    /// Whether events have a say in the index.
    pub fn index_by_event(&self) -> bool {
        match self {
            Self::Event(index) => index.is_some(),
            Self::Raw(parameters) => parameters
                .iter()
                .any(|(name, template)| *name == "index" && template.constant().is_none()),
        }
    }

    /// The fields that its templates name.
    pub fn reads(&self) -> Vec<Arc<FieldRead>> {
        match self {
            Self::Event(index) => index.iter().flat_map(Template::reads).collect(),
            Self::Raw(parameters) => {
                let templates = parameters.iter().map(|(_, template)| template);
                templates.flat_map(Template::reads).collect()
            }
        }
    }

    /// The rows of a batch by destination; none where all go to the same.
    pub fn groups(&self, batch: &Batch, rows: &Bitmap) -> Option<Vec<Group>> {
        match self {
            Self::Event(None) => None,
            Self::Event(Some(index)) => {
                let mut index = index.bind(batch, Absent::Text(""));
                let render = |row: usize, out: &mut Vec<u8>| index.write(row, out);
                Some(partition(batch, rows, render, checked))
            }
            Self::Raw(parameters) => {
                let mut bound: Vec<_> = parameters
                    .iter()
                    .map(|(name, template)| (*name, template.bind(batch, Absent::Text(""))))
                    .collect();
                let render = |row: usize, out: &mut Vec<u8>| {
                    let mut query = form_urlencoded::Serializer::new(String::new());
                    for (name, template) in &mut bound {
                        let mut text = Vec::new();
                        template.write(row, &mut text);
                        if !text.is_empty() {
                            query.append_pair(name, &String::from_utf8_lossy(&text));
                        }
                    }
                    out.extend_from_slice(query.finish().as_bytes());
                };
                Some(partition(batch, rows, render, checked))
            }
        }
    }

    /// The address for events that go to this destination, on a host.
    pub fn url(&self, host: &Url, destination: &str) -> Url {
        match self {
            Self::Event(_) => below(host, &["services", "collector", "event"]),
            Self::Raw(_) => {
                let mut url = below(host, &["services", "collector", "raw"]);
                url.set_query(Some(destination).filter(|query| !query.is_empty()));
                url
            }
        }
    }
}

fn checked(destination: &[u8]) -> Result<Arc<str>, Arc<str>> {
    let text = String::from_utf8_lossy(destination);
    match text.len() > QUERY_BYTES_MAX {
        true => Err("host, source, sourcetype and index are too long for a request".into()),
        false => Ok(text.into()),
    }
}
