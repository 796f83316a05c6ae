//! Reading a map by hand, with the same refusal of unknown keys as the deserializer.

use serde::de::DeserializeOwned;

use crate::error::ConfigError;
use crate::node::{Node, NodeKind};
use crate::renamed::unknown_setting;

/// Takes the settings of a map one by one; [`MapReader::finish`] refuses what nobody asked for.
pub struct MapReader<'n> {
    node: &'n Node,
    what: String,
    asked: Vec<&'n str>,
}

impl Node {
    /// Reads this node as a map. `what` names its owner in errors, such as `pipeline`. Null reads as an empty map.
    pub fn map_reader<'n>(&'n self, what: &str) -> Result<MapReader<'n>, ConfigError> {
        match self.kind {
            NodeKind::Map(_) | NodeKind::Null => Ok(MapReader {
                node: self,
                what: what.to_owned(),
                asked: Vec::new(),
            }),
            NodeKind::Scalar { .. } | NodeKind::List(_) => Err(self.error(format!(
                "expected a map of settings for {what}, found {}",
                self.kind_name()
            ))),
        }
    }
}

impl<'n> MapReader<'n> {
    /// The value of a key; none when it is absent.
    pub fn take(&mut self, key: &'n str) -> Option<&'n Node> {
        self.asked.push(key);
        self.node.get(key)
    }

    /// The value of a key as a type; none when the key is absent or null.
    pub fn parse<T: DeserializeOwned>(&mut self, key: &'n str) -> Result<Option<T>, ConfigError> {
        match self.take(key) {
            Some(node) if !node.is_null() => node.deserialize().map(Some),
            _ => Ok(None),
        }
    }

    /// Refuses the first key that was not asked for; what was asked for is listed as accepted.
    pub fn finish(self) -> Result<(), ConfigError> {
        let entries = self.node.as_map().unwrap_or_default();
        for (key, _) in entries {
            let name = key.as_str().unwrap_or_default();
            if !self.asked.contains(&name) {
                return Err(unknown_setting(key, name, Some(&self.what), self.asked));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{ConfigError, Node, Size, Source, parse_yaml};

    fn read(root: &Node) -> Result<(String, Option<Size>), ConfigError> {
        let mut reader = root.map_reader("queue")?;
        let kind = reader.parse("kind")?.unwrap_or_default();
        let size = reader.parse("max_bytes")?;
        reader.finish()?;
        Ok((kind, size))
    }

    #[test]
    fn reads_and_refuses() {
        let parse = |text: &str| parse_yaml(&Source::new("t.yaml", text)).expect(text);
        let (kind, size) = read(&parse("kind: disk\nmax_bytes: 1KiB")).expect("valid");
        assert_eq!((kind.as_str(), size), ("disk", Some(Size(1024))));
        assert_eq!(
            read(&parse("kind: disk\nmax_bytes:")).expect("valid").1,
            None
        );
        for (text, place, part) in [
            (
                "kind: disk\nmax_bites: 1",
                (2, 1),
                "did you mean `max_bytes`?",
            ),
            (
                "[a]",
                (1, 1),
                "expected a map of settings for queue, found a list",
            ),
            ("kind: [a, b]", (1, 7), "expected text"),
        ] {
            let error = read(&parse(text)).expect_err(text);
            assert_eq!(
                (error.line(), error.column()),
                (Some(place.0), Some(place.1)),
                "{error}"
            );
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
