//! What a call does with the values of its arguments, once those that are constants were worked into it.

use crate::fault::What;
use crate::value::Val;

/// What is wrong with a constant argument: which one, and why.
#[derive(Debug)]
pub(crate) struct Refused {
    pub argument: usize,
    pub message: String,
}

impl Refused {
    pub fn new(argument: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { argument, message }
    }
}

/// Makes a function of the arguments that are constants; the others are `None`.
pub(crate) type Prepare = fn(&[Option<&Val<'static>>]) -> Result<Run, Refused>;

type CallRun = Box<dyn for<'a> Fn(&[Val<'a>]) -> Result<Val<'a>, What> + Send + Sync>;
type WriteRun = Box<dyn for<'a> Fn(&[Val<'a>], &mut Vec<u8>) -> Result<(), What> + Send + Sync>;

/// What a call does with the values of its arguments.
pub(crate) enum Run {
    Call(CallRun),
    Write(WriteRun),
}

impl Run {
    /// A function that gives a value.
    pub fn call<F>(run: F) -> Self
    where
        F: for<'a> Fn(&[Val<'a>]) -> Result<Val<'a>, What> + Send + Sync + 'static,
    {
        Self::Call(Box::new(run))
    }

    /// A function that appends a text.
    pub fn write<F>(run: F) -> Self
    where
        F: for<'a> Fn(&[Val<'a>], &mut Vec<u8>) -> Result<(), What> + Send + Sync + 'static,
    {
        Self::Write(Box::new(run))
    }
}
