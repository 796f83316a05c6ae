//! A function with its arguments' constants worked into it.

use std::fmt;

use super::run::{Refused, Run};
use super::time::bind_part;
use super::{FunctionDoc, Kind, bytes, text_format};
use crate::fault::What;
use crate::types::Known;
use crate::value::Val;

/// A function, ready to be called.
pub(crate) struct Bound {
    function: &'static FunctionDoc,
    run: Run,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function.name)
    }
}

/// Binds a function to those of its arguments that are constants.
pub(crate) fn bind(
    function: &'static FunctionDoc,
    constants: &[Option<&Val<'static>>],
) -> Result<Bound, Refused> {
    let run = match function.kind {
        Kind::Call(call) => Run::call(call),
        Kind::Write(write) | Kind::WriteMetadata(_, write) => Run::write(write),
        Kind::Prepared(prepare) => prepare(constants)?,
        Kind::Format => text_format::prepare(constants.first().copied().flatten(), None)?,
        Kind::Part(part) => bind_part(part, constants)?,
        Kind::Question(question) => Run::call(move |args| match (&args[0], &args[1]) {
            (Val::Text(text), Val::Text(part)) => Ok(Val::Bool(question.answer(text, part))),
            (a, b) if a.is_nothing() || b.is_nothing() => Ok(Val::Bool(false)),
            (Val::Text(_), other) | (other, _) => Err(What::Needs("a text", other.kind())),
        }),
        Kind::Type => Run::call(|args| Ok(Val::Text(args[0].kind().name().as_bytes().into()))),
        _ => Run::call(|args| Err(What::Needs("an operator of its own", args[0].kind()))),
    };
    Ok(Bound { function, run })
}

/// Binds `format`, whose list has so many elements, which are arguments themselves.
pub(crate) fn bind_format(
    function: &'static FunctionDoc,
    format: Option<&Val<'static>>,
    elements: Option<usize>,
) -> Result<Bound, Refused> {
    let run = text_format::prepare(format, elements)?;
    Ok(Bound { function, run })
}

impl Bound {
    /// The value for these arguments.
    pub fn value<'a>(&self, args: &[Val<'a>]) -> Result<Val<'a>, What> {
        if let Some(nothing) = self.nothing(args) {
            return Ok(nothing);
        }
        match &self.run {
            Run::Call(run) => run(args),
            Run::Write(run) => {
                let mut out = Vec::new();
                run(args, &mut out)?;
                Ok(Val::text(out))
            }
        }
    }

    /// Whether the value may be true or false, as the signature has it.
    pub fn may_be_true(&self) -> bool {
        let result = self.function.signature.rsplit(' ').next();
        matches!(result, Some("bool" | "value"))
    }

    /// The type of the value where it is there, as the signature has it.
    pub fn gives(&self) -> Option<Known> {
        Known::of_signature(self.function.signature)
    }

    /// Whether the value is a text of letters, which nobody means to compare with numbers.
    pub fn is_wordy(&self) -> bool {
        const WORDY: [&str; 9] = [
            "lower",
            "upper",
            "lowerAscii",
            "upperAscii",
            "sha256",
            "sha512",
            "sha1",
            "md5",
            "uuid",
        ];
        WORDY.contains(&self.function.name)
    }

    /// What is wrong with this key of the map that it gives, and the one that may be meant.
    pub fn unknown_member(&self, key: &str) -> Option<(String, Option<&'static str>)> {
        match self.function.name {
            "url.parse" => bytes::unknown_part(key),
            _ => None,
        }
    }

    /// Whether the value is a text that [`Self::write`] appends.
    pub fn writes(&self) -> bool {
        matches!(self.run, Run::Write(_))
    }

    /// Appends the text for these arguments; gives a value instead where there is no text. A call that fails may have
    /// appended a part.
    pub fn write<'a>(&self, args: &[Val<'a>], out: &mut Vec<u8>) -> Result<Option<Val<'a>>, What> {
        if let Some(nothing) = self.nothing(args) {
            return Ok(Some(nothing));
        }
        match &self.run {
            Run::Call(run) => run(args).map(Some),
            Run::Write(run) => run(args, out).map(|()| None),
        }
    }

    /// What the function gives where its first argument is absent or null.
    fn nothing<'a>(&self, args: &[Val<'a>]) -> Option<Val<'a>> {
        let first = args.first()?;
        (first.is_nothing() && !self.function.of_nothing).then(|| first.clone())
    }
}
