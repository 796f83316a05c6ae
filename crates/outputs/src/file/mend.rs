//! At the start: cuts the torn ends of files that an earlier run had open when it was killed, wherever they are now.
//!
//! What may be cut is only what the [`journal`](super::journal) shows to be ours: the file itself, known by its inode and
//! time of birth under its path or, if somebody renamed it, under another name in its directory; and in it only what came
//! after it was opened, and of that only an end without which the file is whole. None of that was acknowledged. A file of
//! which nothing is left becomes an archive of nothing (a member without content), because an empty file is no archive.
//!
//! # Limits
//! A file that was moved to another directory meanwhile is not found. Damage that is no torn end stays.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use component::{Warning, plural};
use rustix::io::Errno;

use super::journal::{Identity, Journals, Noted, Stale};
use super::recover::{ExistingFile, examine_members};
use super::storage::lock;
use crate::compressor::Compressor;
use component::Compression;

/// What mending did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Bytes that were cut.
    pub bytes_cut: u64,
    /// What a user should hear.
    pub warnings: Vec<Warning>,
}

/// Mends what the journals of earlier runs name, and removes them. A journal stays, for the next attempt, while a file of it
/// cannot be looked at.
///
/// # Errors
/// The journals cannot be listed.
pub fn mend(journals: &Journals, compression: Compression) -> io::Result<Mended> {
    let mut mended = Mended::default();
    for mut stale in journals.stale()? {
        if mended.mend_all(&mut stale, compression) {
            stale.remove()?;
        }
    }
    Ok(mended)
}

impl Mended {
    fn warn(&mut self, text: String) {
        self.warnings.push(text.into());
    }

    /// Whether all of it was looked at.
    fn mend_all(&mut self, stale: &mut Stale, compression: Compression) -> bool {
        let noted = match stale.noted() {
            Ok(noted) => noted,
            Err(error) => {
                let warning = format!(
                    "the list of files that were open in an interrupted run cannot be read: {error}; incomplete writes at their ends are kept"
                );
                self.warn(warning);
                return false;
            }
        };
        let mut is_done = true;
        for noted in noted {
            if let Err(error) = self.mend_one(&noted, compression) {
                is_done = false;
                self.warn(format!(
                    "{}: cannot be checked: {error}; an incomplete write at its end is kept until the next start",
                    noted.path.display()
                ));
            }
        }
        is_done
    }

    fn mend_one(&mut self, noted: &Noted, compression: Compression) -> io::Result<()> {
        let Some((path, file)) = find(noted)? else {
            return Ok(());
        };
        let from = noted.identity.map_or(0, |identity| identity.size);
        let size = file.metadata()?.len();
        let found = match size {
            0 if from == 0 => ExistingFile::Torn { keep: 0 },
            // Somebody cut it, or it holds what was there before and nothing of ours.
            _ if size <= from => return Ok(()),
            _ => examine_members(&file, from, size, compression)?,
        };
        let shown = path.display();
        match found {
            ExistingFile::Torn { keep } => {
                cut(&file, keep, compression)?;
                let cut = size - keep;
                if cut > 0 {
                    self.bytes_cut += cut;
                    self.warn(format!(
                        "{shown}: removed an incomplete write of {} at the end, left by an interrupted run",
 plural(cut, "byte")
                    ));
                }
            }
            ExistingFile::Damaged { at } => self.warn(format!(
                "{shown}: the data is damaged from byte {at} on, not just by an incomplete write; the file is left unchanged"
            )),
            ExistingFile::Whole | ExistingFile::Unended { .. } | ExistingFile::Foreign => {}
        }
        Ok(())
    }
}

/// Cuts a file after its last whole member, and makes that durable: the journal does not tell of it a second time.
fn cut(mut file: &File, keep: u64, compression: Compression) -> io::Result<()> {
    file.set_len(keep)?;
    if keep == 0 {
        let mut compressor = Compressor::new(compression);
        let mut nothing = Vec::new();
        compressor.write(b"", &mut nothing)?;
        compressor.end_member(&mut nothing)?;
        io::Write::write_all(&mut file, &nothing)?;
    }
    file.sync_all()
}

/// The noted file, locked, and where it is. None where it is gone, was never made, or somebody else writes to it, who has
/// looked at its end before.
fn find(noted: &Noted) -> io::Result<Option<(PathBuf, File)>> {
    let Some(path) = place_of(noted)? else {
        return Ok(None);
    };
    let file = OpenOptions::new().read(true).append(true).open(&path)?;
    match lock(&file) {
        Err(error) if error.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error()) => {
            return Ok(None);
        }
        other => other?,
    }
    // Another file may have come to this place meanwhile.
    let metadata = file.metadata()?;
    let is_it = match &noted.identity {
        Some(identity) => identity.is_of(&metadata),
        None => metadata.is_file() && metadata.len() == 0,
    };
    Ok(is_it.then_some((path, file)))
}

fn place_of(noted: &Noted) -> io::Result<Option<PathBuf>> {
    let at_path = match noted.path.metadata() {
        Ok(metadata) => Some(metadata),
        Err(error) if is_absence(&error) => None,
        Err(error) => return Err(error),
    };
    let Some(identity) = &noted.identity else {
        let is_new = at_path.is_some_and(|metadata| metadata.is_file() && metadata.len() == 0);
        return Ok(is_new.then(|| noted.path.clone()));
    };
    if at_path.is_some_and(|metadata| identity.is_of(&metadata)) {
        return Ok(Some(noted.path.clone()));
    }
    match noted.path.parent() {
        Some(parent) => renamed(parent, identity),
        None => Ok(None),
    }
}

/// Where a file of this directory is now that was renamed.
fn renamed(directory: &Path, identity: &Identity) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if is_absence(&error) => return Ok(None),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.ino() == identity.inode()
            && entry
                .metadata()
                .is_ok_and(|metadata| identity.is_of(&metadata))
        {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Whether an error says that there is no such file or directory.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use component::{Output, Writer};
    use tempfile::TempDir;

    use super::super::FileOutput;
    use super::super::tests::{close, content, directory, names, output, write};
    use super::*;
    use crate::testing::wait;

    /// An event that compresses badly, so that most of it reaches the file at once.
    fn bulky(number: u32) -> String {
        let mut random = u64::from(number) + 1;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b'0' + (random >> 40) as u8 % 64)
        };
        let text: String = std::iter::repeat_with(&mut next)
            .filter(|letter| *letter != '\\')
            .take(600_000)
            .collect();
        format!(r#"{{"a":"x","n":{number},"text":"{text}"}}"#)
    }

    /// A run that wrote `rows` and was killed: nothing is flushed.
    fn killed(directory: &TempDir, yaml: &str, rows: &[&str]) {
        let (output, _) = output(directory, yaml);
        write(&output, rows).expect("it writes");
    }

    fn started(directory: &TempDir, yaml: &str) -> FileOutput {
        let (output, _) = output(directory, yaml);
        wait(output.open()).expect("nothing is refused");
        output
    }

    fn bytes(directory: &TempDir, name: &str) -> Vec<u8> {
        fs::read(directory.path().join(name)).expect("the file is there")
    }

    #[test]
    fn a_file_without_a_whole_member_becomes_an_archive_of_nothing() {
        for name in ["x.gz", "x.zst"] {
            for row in [r#"{"a":"x","n":1}"#, &bulky(1)] {
                for path in [
                    format!("$/{name}"),
                    format!("'$/{}'", name.replace('x', "%{a}")),
                ] {
                    let directory = directory();
                    let yaml = format!("path: {path}");
                    killed(&directory, &yaml, &[row]);
                    assert_eq!(names(&directory).len(), 2, "the file and a journal");
                    let torn = bytes(&directory, name).len() as u64;
                    let output = started(&directory, &yaml);
                    assert_eq!(names(&directory), [name], "{path}");
                    assert_eq!(content(directory.path().join(name)), "", "{path}");
                    let said = if torn > 0 { 1 } else { 0 };
                    assert_eq!(output.take_warnings().len(), said, "{path}");
                    let counted = output.take_counters().first().map_or(0, |(_, cut)| *cut);
                    assert_eq!(counted, torn);
                    write(&output, &[r#"{"a":"x","n":2}"#]).expect("it writes");
                    close(&output);
                    assert_eq!(names(&directory), [name], "{path}");
                    let expected = "{\"a\":\"x\",\"n\":2}\n";
                    assert_eq!(content(directory.path().join(name)), expected, "{path}");
                }
            }
        }
    }

    #[test]
    fn whole_members_stay_wherever_the_file_is_now() {
        for ending in ["gz", "zst"] {
            for is_renamed in [false, true] {
                let directory = directory();
                let yaml = format!("path: '$/%{{a}}.{ending}'");
                let (before, _) = output(&directory, &yaml);
                write(&before, &[r#"{"a":"x","n":1}"#]).expect("it writes");
                close(&before);
                let (output, _) = output(&directory, &yaml);
                write(&output, &[r#"{"a":"x","n":2}"#]).expect("it writes");
                wait(output.flush()).expect("it flushes");
                write(&output, &[&bulky(3)]).expect("it writes");
                drop(output);
                let (old, new) = (format!("x.{ending}"), format!("moved.{ending}"));
                let now = if is_renamed { &new } else { &old };
                fs::rename(directory.path().join(&old), directory.path().join(now))
                    .expect("it renames");
                let output = started(&directory, &yaml);
                assert_eq!(
                    content(directory.path().join(now)),
                    "{\"a\":\"x\",\"n\":1}\n{\"a\":\"x\",\"n\":2}\n"
                );
                assert_eq!(names(&directory), [now.as_str()]);
                let warnings = output.take_warnings();
                assert!(
                    warnings.len() == 1 && warnings[0].text.contains("incomplete write"),
                    "{warnings:?}"
                );
                assert_eq!(output.take_counters().len(), 1);
            }
        }
    }

    #[test]
    fn a_file_of_somebody_else_is_never_cut() {
        for ending in ["gz", "zst"] {
            let directory = directory();
            let yaml = format!("path: '$/%{{a}}.{ending}'");
            let at = |name: &str| directory.path().join(format!("{name}.{ending}"));
            killed(&directory, &yaml, &[&bulky(1)]);
            let torn = fs::read(at("x")).expect("the file is there");
            // One beside it, and one in its place, whose inode may well have the same number.
            fs::write(at("beside"), &torn).expect("it writes");
            fs::remove_file(at("x")).expect("it removes");
            fs::write(at("x"), &torn).expect("it writes");
            let output = started(&directory, &yaml);
            assert!(fs::read(at("beside")).expect("the file is there") == torn);
            assert!(fs::read(at("x")).expect("the file is there") == torn);
            assert!(output.take_warnings().is_empty());
            // Written to, it is put aside as it is.
            write(&output, &[r#"{"a":"x","n":2}"#]).expect("it writes");
            close(&output);
            assert_eq!(content(at("x")), "{\"a\":\"x\",\"n\":2}\n");
            let aside = fs::read(at("x-19700101T000000Z-000")).expect("it was put aside");
            assert!(aside == torn);
        }
    }

    #[test]
    fn what_was_there_before_and_what_is_no_torn_end_stay() {
        let directory = directory();
        let (yaml, path) = ("path: $/x.gz", directory.path().join("x.gz"));
        let (before, _) = output(&directory, yaml);
        write(&before, &[r#"{"n":1}"#]).expect("it writes");
        close(&before);
        let whole = fs::read(&path).expect("the file is there");
        for is_cut in [true, false] {
            fs::write(&path, &whole).expect("it writes");
            killed(&directory, yaml, &[&bulky(2)]);
            let changed = match is_cut {
                true => whole[..whole.len() - 2].to_owned(),
                false => {
                    let mut broken = whole.clone();
                    broken[whole.len() - 6] ^= 0x55;
                    [whole.clone(), broken, whole.clone()].concat()
                }
            };
            // In place, so that it stays the same file.
            let mut file = File::create(&path).expect("it opens");
            file.write_all(&changed).expect("it writes");
            let output = started(&directory, yaml);
            assert!(fs::read(&path).expect("the file is there") == changed);
            assert_eq!(output.take_warnings().len(), usize::from(!is_cut));
            assert_eq!(names(&directory), ["x.gz"], "the journal is done with");
        }
    }

    #[test]
    fn the_files_of_a_writer_that_lives_are_left_to_it() {
        let directory = directory();
        let yaml = "path: '$/%{a}.gz'";
        let (first, _) = output(&directory, yaml);
        write(&first, &[&bulky(1)]).expect("it writes");
        let torn = bytes(&directory, "x.gz");
        let second = started(&directory, yaml);
        write(&second, &[r#"{"a":"y"}"#]).expect("it writes");
        assert!(bytes(&directory, "x.gz") == torn);
        assert_eq!(
            names(&directory).len(),
            4,
            "two files and a journal for each"
        );
        close(&second);
        close(&first);
        assert_eq!(names(&directory), ["x.gz", "y.gz"]);
        assert_eq!(content(directory.path().join("x.gz")).lines().count(), 1);
    }

    #[test]
    fn a_directory_that_comes_late_is_mended_before_anything_is_written() {
        let directory = directory();
        let (here, away) = (directory.path().join("sub"), directory.path().join("away"));
        fs::create_dir(&here).expect("a directory");
        let yaml = "{path: $/sub/x.gz, create_dirs: false}";
        killed(&directory, yaml, &[&bulky(1)]);
        fs::rename(&here, &away).expect("it renames");
        let output = started(&directory, yaml);
        write(&output, &[r#"{"n":2}"#]).expect_err("there is no directory");
        fs::rename(&away, &here).expect("it renames");
        write(&output, &[r#"{"n":2}"#]).expect("it writes");
        close(&output);
        assert_eq!(content(here.join("x.gz")), "{\"n\":2}\n");
        assert_eq!(fs::read_dir(&here).expect("a directory").count(), 1);
    }
}
