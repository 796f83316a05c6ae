//! The components that a configuration may name.

use std::sync::Arc;

use component::{Input, Spec, Writer};
use config::{Catalogue, ConfigError, Node, Positional, StageRole};
use kafka::queue::KafkaQueue;

/// Makes the output that puts the events of the pipeline of this name into its queue.
pub type QueueOutput = fn(&KafkaQueue, &str) -> Result<Arc<dyn Writer>, ConfigError>;

/// Makes the input that takes the events of the pipeline of this name from its queue, as a member of a group.
pub type QueueInput = fn(&KafkaQueue, &str, String) -> Result<Box<dyn Input>, ConfigError>;

/// Every component of the program.
#[derive(Debug, Clone, Copy)]
pub struct Registry {
    /// The inputs.
    pub inputs: &'static [Spec],
    /// The processors.
    pub processors: &'static [Spec],
    /// The outputs.
    pub outputs: &'static [Spec],
    /// What stands before a queue that machines share.
    pub queue_output: QueueOutput,
    /// What stands behind one.
    pub queue_input: QueueInput,
}

impl Registry {
    /// The components of one kind.
    pub fn of(&self, role: StageRole) -> &'static [Spec] {
        match role {
            StageRole::Input => self.inputs,
            StageRole::Processor => self.processors,
            StageRole::Output => self.outputs,
        }
    }

    /// A component by kind and name, or alias.
    pub fn find(&self, role: StageRole, name: &str) -> Option<&'static Spec> {
        let mut specs = self.of(role).iter();
        specs.find(|spec| spec.names().any(|known| known == name))
    }

    /// The component that a node names.
    ///
    /// # Errors
    /// There is no such component: the accepted names and the closest one are in the error.
    pub fn resolve(&self, role: StageRole, name: &Node) -> Result<&'static Spec, ConfigError> {
        let word = name.as_str().unwrap_or_default();
        self.find(role, word)
            .ok_or_else(|| self.unknown(role, name, word))
    }

    fn unknown(&self, role: StageRole, name: &Node, word: &str) -> ConfigError {
        let roles = [StageRole::Input, StageRole::Processor, StageRole::Output];
        let elsewhere = roles
            .into_iter()
            .find(|&other| other != role && self.find(other, word).is_some());
        let error = name.error(format!("unknown {} `{word}`", role.word()));
        let error = error.accepted(self.of(role).iter().map(|spec| spec.name));
        match elsewhere {
            Some(other) => error.note(format!("`{word}` is {}", other.with_article())),
            None => error.closest_to(word),
        }
    }
}

impl Catalogue for Registry {
    fn positional(&self, role: StageRole, name: &str) -> Option<Positional> {
        self.find(role, name).map(|spec| spec.positional)
    }

    fn names(&self, role: StageRole) -> Vec<&str> {
        self.of(role).iter().map(|spec| spec.name).collect()
    }
}
