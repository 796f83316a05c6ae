//! Which pipelines feed which: what is refused before anything starts.

use std::collections::BTreeMap;

use config::{ConfigError, Node};

/// The links between the pipelines of a configuration.
#[derive(Default)]
pub struct Links {
    /// Who feeds whom, by the place of the output.
    feeders: Vec<Link>,
    /// The pipelines that are fed, with the place of the input.
    fed: BTreeMap<String, Node>,
}

struct Link {
    from: String,
    to: String,
    place: Node,
}

impl Links {
    /// An output of a pipeline feeds another one.
    pub fn feeds(&mut self, from: &str, to: &str, place: &Node) {
        self.feeders.push(Link {
            from: from.to_owned(),
            to: to.to_owned(),
            place: place.clone(),
        });
    }

    /// A pipeline is fed.
    pub fn is_fed(&mut self, name: &str, place: &Node) {
        self.fed.insert(name.to_owned(), place.clone());
    }

    /// Whether one pipeline feeds another.
    pub fn has(&self, from: &str, to: &str) -> bool {
        let mut links = self.feeders.iter();
        links.any(|link| link.from == from && link.to == to)
    }

    /// Checks that what is fed is there and takes nothing else, that somebody feeds it, and that there is no circle.
    ///
    /// # Errors
    /// The first link that cannot work, with its place.
    pub fn check(&self, pipelines: &[&str]) -> Result<(), ConfigError> {
        for Link { from, to, place } in &self.feeders {
            if !pipelines.contains(&to.as_str()) {
                let error = place.error(format!("there is no pipeline `{to}`"));
                return Err(error.accepted(pipelines.iter().copied()).closest_to(to));
            }
            if let Some(way) = self.way(to, from) {
                let way: Vec<&str> = [from.as_str()].into_iter().chain(way).collect();
                let way = way.join(" -> ");
                return Err(place.error(format!("pipelines feed each other in a circle: {way}")));
            }
            if !self.fed.contains_key(to) {
                let error = place.error(format!(
                    "pipeline `{to}` has inputs of its own, so that `{from}` cannot feed it"
                ));
                return Err(error.note("a pipeline that is fed has no input but `input: pipeline`"));
            }
        }
        for (name, place) in &self.fed {
            if !self.feeders.iter().any(|link| link.to == *name) {
                let error = place.error(format!("no output feeds pipeline `{name}`"));
                return Err(error.note(format!(
                    "another pipeline feeds it with `output: {{ pipeline: {name} }}`"
                )));
            }
        }
        Ok(())
    }

    /// The pipelines from one to another along the links, both included, where there is a way.
    fn way<'l>(&'l self, from: &'l str, to: &str) -> Option<Vec<&'l str>> {
        let mut ways: Vec<Vec<&str>> = vec![vec![from]];
        let mut seen = vec![from];
        while let Some(way) = ways.pop() {
            let last = *way.last()?;
            if last == to {
                return Some(way);
            }
            for link in self.feeders.iter().filter(|link| link.from == last) {
                if !seen.contains(&link.to.as_str()) {
                    seen.push(&link.to);
                    ways.push([&way[..], &[&link.to]].concat());
                }
            }
        }
        None
    }
}
