//! The way from the root of a configuration to a node.

use std::fmt;
use std::sync::Arc;

/// The way from the root to a node, such as `pipelines.apache.processors[0].grok`. Cheap to clone.
#[derive(Clone, Default)]
pub struct Path(Option<Arc<PathPart>>);

struct PathPart {
    above: Path,
    name: PartName,
}

enum PartName {
    Key(String),
    Item(usize),
}

impl Path {
    /// The path of the value of `key` below this one.
    pub fn key(&self, key: &str) -> Self {
        self.step(PartName::Key(key.to_owned()))
    }

    /// The path of a list's item below this one.
    pub fn item(&self, index: usize) -> Self {
        self.step(PartName::Item(index))
    }

    fn step(&self, name: PartName) -> Self {
        let above = self.clone();
        Self(Some(Arc::new(PathPart { above, name })))
    }

    /// True at the root.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// The path one step up; none at the root.
    pub fn parent(&self) -> Option<&Path> {
        self.0.as_ref().map(|step| &step.above)
    }

    /// The last key on the way, list positions aside: the name of the component or section that a node belongs to.
    pub fn last_key(&self) -> Option<&str> {
        let step = self.0.as_ref()?;
        match &step.name {
            PartName::Key(key) => Some(key),
            PartName::Item(_) => step.above.last_key(),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = &self.0 else { return Ok(()) };
        step.above.fmt(f)?;
        match &step.name {
            PartName::Key(key) if step.above.is_root() => write!(f, "{key}"),
            PartName::Key(key) => write!(f, ".{key}"),
            PartName::Item(index) => write!(f, "[{index}]"),
        }
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
