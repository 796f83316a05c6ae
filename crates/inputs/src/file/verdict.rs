//! What a file is that begins like a known one: a pure function of what is known, the file's head, and what became of the
//! known one.
//!
//! A rename keeps the inode and is no question. What makes a new inode with known content is a copy: `copytruncate` of
//! logrotate, compressing, or a move to another file system. Two services that write the same first kilobyte look like
//! that too. So whether a file is a copy is decided when the fate of its original is known: it takes over only from a file that
//! was truncated or has disappeared, and otherwise waits a moment or counts as new. The exception is a plain file whose
//! compressed copy was found first:
//!
//! | the known file | the new one | verdict |
//! | --- | --- | --- |
//! | is where it was, compressed | plain, and made before it | may continue it: the known one is a copy of it that was found first, and was read |
//! | is where it was | compressed, the known one plain | held back while it is being written; then compared as a whole: a copy stays held back, anything else is new |
//! | is where it was | a part of it, byte for byte at its end | held back a moment, because a copy is made before its original is truncated; new if the original stays |
//! | is where it was | anything else | new |
//! | was truncated | at the very inode | new: it was written since |
//! | was truncated | anything else | may continue it |
//! | is gone | plain; was not seen beside it, and has not its size and time of the last change | new: it may have been written anew |
//! | is gone | so little of the known one was read that both are alike by chance | new |
//! | is gone | anything else | may continue it |
//!
//! What may continue a known file is looked through ([`super::probe`]), and [`continuation`] decides:
//!
//! | the new one | it |
//! | --- | --- |
//! | reaches the position | takes over id and position, if the bytes before it are those that were read |
//! | the same, but an earlier run had sent more before it was killed | takes over, if it has those bytes, too, or ends before them |
//! | ends before, and was seen to be a part of the known one while that was there | takes over, and everything in it was read |
//! | ends before, where the known one once ended or a copy of it did | the same |
//! | ends before, and hashes of its last parts agree with those of what was read ([`super::trail`]) | the same |
//! | ends before, anything else | is new |
//!
//! Of several known files that a new one begins like, the one of which most was read is asked first: where files have a header
//! in common, any of them may continue one of which no more was read, and the right one would then be read a second time.
//!
//! Whenever the content differs, or it is not sure, the file is new and read from its start: never is data passed over.

/// What became of a known file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is where it was, and holds what was read from it.
    InPlace,
    /// Its inode was truncated.
    Truncated,
    /// Its inode is nowhere to be found.
    Gone,
}

/// What is known when a file is judged by one that it begins like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    /// What became of the known file.
    pub(super) fate: Fate,
    /// The new one is compressed, the known one is not.
    pub(super) is_packed: bool,
    /// The new one is plain and was made before the known one, which is compressed.
    pub(super) is_original: bool,
    /// Both are plain, or compressed in the same way.
    pub(super) has_same_format: bool,
    /// The new one is not compressed.
    pub(super) is_plain: bool,
    /// The new one may still be being written, or the known one about to be truncated.
    pub(super) is_fresh: bool,
    /// Whether the new one is a part of the known one, where that could be seen.
    pub(super) is_part: Option<bool>,
    /// The new one was held back while the known one was there.
    pub(super) was_beside: bool,
    /// The new one has the size and the time of the last change that the known one had.
    pub(super) is_moved: bool,
    /// The new one is where the known one was truncated.
    pub(super) is_left_behind: bool,
    /// So little of the known one was read that others are alike by chance.
    pub(super) is_tiny: bool,
}

/// What a file is, as far as one known file tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is another file than the known one.
    New,
    /// It may continue the known one, and is looked through.
    Continues,
    /// It is not read for now.
    Hold,
    /// It may be a copy of the known one, and is compared with it as a whole.
    Compare,
}

/// Judges a file by one known file.
pub(super) fn verdict(facts: &Facts) -> Verdict {
    match facts.fate {
        Fate::InPlace if facts.is_original => Verdict::Continues,
        Fate::InPlace if facts.is_packed && facts.is_fresh => Verdict::Hold,
        Fate::InPlace if facts.is_packed => Verdict::Compare,
        Fate::InPlace => {
            let may_be_copy = facts.has_same_format && facts.is_part != Some(false);
            if may_be_copy && facts.is_fresh {
                Verdict::Hold
            } else {
                Verdict::New
            }
        }
        Fate::Truncated if facts.is_left_behind => Verdict::New,
        Fate::Gone if facts.is_plain && !facts.was_beside && !facts.is_moved => Verdict::New,
        Fate::Gone if facts.is_tiny => Verdict::New,
        Fate::Truncated | Fate::Gone => Verdict::Continues,
    }
}

/// What was seen of a file that may continue a known one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Passed {
    /// It reaches the position; with whether the bytes before it are those that were read.
    Reached(bool),
    /// It ends before the position.
    Ended(Ending),
    /// It could not be read.
    Failed,
}

/// How a file ends before the position of the known one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ending {
    /// More may come.
    pub(super) is_open: bool,
    /// It was seen to be a part of the known one while that was there.
    pub(super) was_part: bool,
    /// It has the bytes before the position, and ends before others that were sent.
    pub(super) has_position: bool,
    /// The known one, or a copy of it, once ended there with the same bytes.
    pub(super) is_known_end: bool,
    /// Hashes of its last parts agree with those of what was read.
    pub(super) agrees: bool,
    /// It was made after the known one was truncated, so it is no copy made before that.
    pub(super) is_younger: bool,
}

/// Whether a file continues a known one; none while that is not clear.
pub(super) fn continuation(passed: Passed) -> Option<bool> {
    match passed {
        Passed::Reached(is_same) => Some(is_same),
        Passed::Failed => None,
        Passed::Ended(ending) if ending.is_open => None,
        Passed::Ended(ending) => {
            let is_copy = ending.is_known_end || ending.agrees;
            let is_same = ending.was_part || ending.has_position;
            Some(is_same || (is_copy && !ending.is_younger))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Facts = Facts {
        fate: Fate::InPlace,
        is_packed: false,
        is_original: false,
        has_same_format: true,
        is_plain: true,
        is_fresh: true,
        is_part: Some(true),
        was_beside: false,
        is_moved: false,
        is_left_behind: false,
        is_tiny: false,
    };
    const PACKED: Facts = Facts {
        is_packed: true,
        has_same_format: false,
        is_plain: false,
        is_part: None,
        ..PLAIN
    };

    fn facts(fate: Fate, base: Facts, change: impl Fn(&mut Facts)) -> Facts {
        let mut facts = Facts { fate, ..base };
        change(&mut facts);
        facts
    }

    #[test]
    fn the_table_of_verdicts() {
        use Fate::{Gone, InPlace, Truncated};
        let table: &[(&str, Facts, Verdict)] = &[
            (
                "being compressed",
                facts(InPlace, PACKED, |_| {}),
                Verdict::Hold,
            ),
            (
                "compressed beside its original",
                facts(InPlace, PACKED, |facts| facts.is_fresh = false),
                Verdict::Compare,
            ),
            (
                "a copy, just made",
                facts(InPlace, PLAIN, |_| {}),
                Verdict::Hold,
            ),
            (
                "a copy, not to be compared just now",
                facts(InPlace, PLAIN, |facts| facts.is_part = None),
                Verdict::Hold,
            ),
            (
                "a copy whose original stays",
                facts(InPlace, PLAIN, |facts| facts.is_fresh = false),
                Verdict::New,
            ),
            (
                "one that only begins alike",
                facts(InPlace, PLAIN, |facts| facts.is_part = Some(false)),
                Verdict::New,
            ),
            (
                "plain, the known one compressed",
                facts(InPlace, PLAIN, |facts| facts.has_same_format = false),
                Verdict::New,
            ),
            (
                "plain, and older than the known one, which is compressed",
                facts(InPlace, PLAIN, |facts| {
                    facts.has_same_format = false;
                    facts.is_original = true;
                }),
                Verdict::Continues,
            ),
            (
                "written since the truncation",
                facts(Truncated, PLAIN, |facts| facts.is_left_behind = true),
                Verdict::New,
            ),
            (
                "a copy of what was truncated",
                facts(Truncated, PLAIN, |_| {}),
                Verdict::Continues,
            ),
            (
                "a compressed copy of a few bytes that were truncated",
                facts(Truncated, PACKED, |facts| facts.is_tiny = true),
                Verdict::Continues,
            ),
            ("written anew", facts(Gone, PLAIN, |_| {}), Verdict::New),
            (
                "moved while both could be seen",
                facts(Gone, PLAIN, |facts| facts.was_beside = true),
                Verdict::Continues,
            ),
            (
                "moved while nobody looked",
                facts(Gone, PLAIN, |facts| facts.is_moved = true),
                Verdict::Continues,
            ),
            (
                "a few bytes that are alike",
                facts(Gone, PACKED, |facts| facts.is_tiny = true),
                Verdict::New,
            ),
            (
                "compressed",
                facts(Gone, PACKED, |_| {}),
                Verdict::Continues,
            ),
        ];
        for (name, facts, wanted) in table {
            assert_eq!(verdict(facts), *wanted, "{name}");
        }
    }

    #[test]
    fn the_table_of_continuations() {
        let ended = |change: fn(&mut Ending)| {
            let mut ending = Ending::default();
            change(&mut ending);
            Passed::Ended(ending)
        };
        let table = [
            (
                "the same before the position",
                Passed::Reached(true),
                Some(true),
            ),
            ("other bytes before it", Passed::Reached(false), Some(false)),
            ("a read error", Passed::Failed, None),
            ("an end like any other", ended(|_| {}), Some(false)),
            (
                "still being compressed",
                ended(|ending| {
                    ending.is_open = true;
                    ending.agrees = true;
                }),
                None,
            ),
            (
                "seen as a part",
                ended(|ending| ending.was_part = true),
                Some(true),
            ),
            (
                "behind the position, before what was sent",
                ended(|ending| ending.has_position = true),
                Some(true),
            ),
            (
                "an earlier end",
                ended(|ending| ending.is_known_end = true),
                Some(true),
            ),
            (
                "hashes that agree",
                ended(|ending| ending.agrees = true),
                Some(true),
            ),
            (
                "made after the truncation",
                ended(|ending| {
                    ending.agrees = true;
                    ending.is_known_end = true;
                    ending.is_younger = true;
                }),
                Some(false),
            ),
        ];
        for (name, passed, wanted) in table {
            assert_eq!(continuation(passed), wanted, "{name}");
        }
    }
}
