//! What every input and every output must do, checked over a whole registry. A component without a case fails the check, so
//! that none is forgotten.

pub mod input;
pub mod output;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use batch::HostInfo;
use component::own::LogTails;
use component::{BuildContext, Effects, Own, Spec};
use config::{Node, Source, parse_yaml};
use tempfile::TempDir;

use crate::ports::free_port;

/// What a component under test has for itself.
pub struct Workspace {
    folder: TempDir,
    /// A port that nobody else uses.
    pub port: u16,
    /// How many documents the process tells of itself when it is asked next.
    pub told: Arc<AtomicUsize>,
    /// What the process tells of itself.
    pub own: Own,
}

impl Workspace {
    /// A new folder, and a port that was free a moment ago.
    pub fn new() -> Self {
        let told = Arc::new(AtomicUsize::new(0));
        let tell = told.clone();
        let metrics = move || vec![b"{}".to_vec(); tell.swap(0, Ordering::SeqCst)];
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            port: free_port(),
            told,
            own: Own::new(metrics, LogTails::default()),
        }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

/// The case of each component, but for those that this build is without (`absent`).
///
/// # Panics
/// A component has none, or a case has no component.
fn pair<'a, C>(
    specs: &'a [Spec],
    cases: &'a [C],
    absent: &[&str],
    name: fn(&C) -> &str,
) -> Vec<(&'a Spec, &'a C)> {
    let named = |wanted: &str| specs.iter().any(|spec| spec.name == wanted);
    for case in cases {
        assert!(named(name(case)), "there is no component {}", name(case));
    }
    let find = |spec: &'a Spec| {
        let case = cases.iter().find(|case| name(case) == spec.name);
        let case = case.unwrap_or_else(|| panic!("{} has no conformance case", spec.name));
        (spec, case)
    };
    let does_work = |spec: &&Spec| !spec.is_link() && !absent.contains(&spec.name);
    specs.iter().filter(does_work).map(find).collect()
}

fn settings(yaml: &str) -> Node {
    parse_yaml(&Source::new("test.yaml", yaml)).expect("the case's YAML is fine")
}

fn context(finite: bool) -> BuildContext {
    BuildContext {
        host: Arc::new(HostInfo {
            name: "test-host".into(),
        }),
        tag: None,
        finite,
        effects: Effects::All,
    }
}
