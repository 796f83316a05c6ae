//! The corpus: inputs worth keeping, each an ordinary test and a start for the fuzzer.
//!
//! Inputs that somebody chose are the files `fuzz/corpus/TARGET/NAME`. Those that the fuzzer made up have no names, are small, and
//! are hundreds for a target: they are the lines of one file, `fuzz/corpus/TARGET.inputs`, instead of thousands of files.
//!
//! A line is an input as [`u8::escape_ascii`] writes it, in double quotes, such as `"{\"n\":1}\n\xff"`. With a `b` before
//! it, it is Rust's literal of these bytes. No other form is accepted, so that an input has one line only. The lines are sorted.

use std::collections::{BTreeSet, HashSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::{fs, iter};

/// An input of a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    /// Where it is, in the folder of the corpus: `TARGET/NAME`, or `TARGET.inputs:LINE`.
    pub place: String,
    pub bytes: Vec<u8>,
}

/// A folder below `fuzz` of this repository, from which Cargo runs this. It says so at run time: what was built in another clone
/// may be run here.
///
/// # Panics
/// Cargo does not run this.
pub fn of_repository(folder: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("run by Cargo");
    Path::new(&package).join("../../fuzz").join(folder)
}

/// A folder with the inputs of all targets.
pub struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    /// The one of this repository, from which Cargo runs this.
    pub fn of_repository() -> Self {
        Self::new(of_repository("corpus"))
    }

    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The targets that have inputs.
    ///
    /// # Errors
    /// The folder cannot be read, or holds something else.
    pub fn targets(&self) -> Result<BTreeSet<String>> {
        let targets = paths(&self.folder)?.into_iter().map(|path| {
            let is_known = path.is_dir() || path.extension().is_some_and(|end| end == "inputs");
            match path.file_stem().and_then(|name| name.to_str()) {
                Some(name) if is_known => Ok(name.to_owned()),
                _ => Err(invalid(format!(
                    "{}: neither a folder nor a file *.inputs",
                    path.display()
                ))),
            }
        });
        targets.collect()
    }

    /// Every input of a target, those with a name first.
    ///
    /// # Errors
    /// A file cannot be read, or has a line that is no input.
    pub fn inputs(&self, target: &str) -> Result<Vec<Input>> {
        let mut inputs = self.named(target)?;
        inputs.extend(self.lines(target)?);
        Ok(inputs)
    }

    /// Makes the files in a folder the lines of a target, without those that the corpus has by name. Returns how many they are.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn pack(&self, target: &str, from: &Path) -> Result<usize> {
        let named = self.named(target)?.into_iter().map(|input| input.bytes);
        let named: HashSet<_> = named.collect();
        let mut lines = BTreeSet::new();
        for path in paths(from)? {
            let bytes = read(&path)?;
            if !named.contains(&bytes) {
                lines.insert(quote(&bytes) + "\n");
            }
        }
        let text: String = lines.iter().map(String::as_str).collect();
        let file = self.file(target);
        fs::write(&file, text).map_err(|error| at(&file, &error))?;
        Ok(lines.len())
    }

    /// Writes each line of a target as a file `line-NUMBER` into a folder. Returns how many they are.
    ///
    /// # Errors
    /// A file cannot be read or written, or has a line that is no input.
    pub fn unpack(&self, target: &str, to: &Path) -> Result<usize> {
        fs::create_dir_all(to).map_err(|error| at(to, &error))?;
        let inputs = self.lines(target)?;
        for (number, input) in iter::zip(1.., &inputs) {
            let file = to.join(format!("line-{number}"));
            fs::write(&file, &input.bytes).map_err(|error| at(&file, &error))?;
        }
        Ok(inputs.len())
    }

    fn file(&self, target: &str) -> PathBuf {
        self.folder.join(format!("{target}.inputs"))
    }

    /// The files of a target. It may have none.
    fn named(&self, target: &str) -> Result<Vec<Input>> {
        let folder = self.folder.join(target);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let inputs = paths(&folder)?.into_iter().map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let place = format!("{target}/{name}");
            read(&path).map(|bytes| Input { place, bytes })
        });
        inputs.collect()
    }

    /// The lines of a target. It may have none.
    fn lines(&self, target: &str) -> Result<Vec<Input>> {
        let file = self.file(target);
        if !file.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&file).map_err(|error| at(&file, &error))?;
        let inputs = iter::zip(1.., text.lines()).map(|(number, line)| {
            let place = format!("{target}.inputs:{number}");
            match unquote(line) {
                Some(bytes) => Ok(Input { place, bytes }),
                None => Err(invalid(format!(
                    "{place}: no input as `u8::escape_ascii` writes it, in quotes: {line}"
                ))),
            }
        });
        inputs.collect()
    }
}

/// An input as a line.
pub fn quote(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

/// The input of a line, unless [`quote`] writes none like it.
pub fn unquote(line: &str) -> Option<Vec<u8>> {
    let mut rest = line.strip_prefix('"')?.strip_suffix('"')?.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b't' => b'\t',
                b'r' => b'\r',
                b'n' => b'\n',
                b'x' => (digit(rest.next()?)? << 4) | digit(rest.next()?)?,
                itself => itself,
            },
            itself => itself,
        });
    }
    (quote(&bytes) == line).then_some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

/// What is in a folder, sorted.
fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(|error| at(folder, &error))?;
    let paths = entries.map(|entry| Ok(entry.map_err(|error| at(folder, &error))?.path()));
    let mut paths = paths.collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| at(path, &error))
}

fn at(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn invalid(problem: String) -> Error {
    Error::new(ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_and_unquoting_are_inverse_for_all_bytes() {
        let mut cases = vec![Vec::new(), (0..=255).collect()];
        for one in 0..=255 {
            cases.push(vec![one]);
            cases.extend((0..=255).map(|two| vec![one, two]));
        }
        let mut rng = fastrand::Rng::with_seed(1);
        cases.extend((0..1000).map(|_| {
            let len = rng.usize(..200);
            iter::repeat_with(|| rng.u8(..)).take(len).collect()
        }));
        let mut lines = HashSet::new();
        for bytes in &cases {
            let line = quote(bytes);
            assert!(
                line.bytes()
                    .all(|byte| byte == b' ' || byte.is_ascii_graphic())
            );
            assert_eq!(unquote(&line).as_ref(), Some(bytes), "{line}");
            lines.insert(line);
        }
        assert!(lines.len() > 65_536, "each has a line of its own");
    }

    #[test]
    fn a_line_that_is_written_otherwise_is_no_input() {
        let wrong = [
            "",
            "\"",
            "a",
            "\"a",
            "a\"",
            "\"a\" ",
            r#"""""#,
            r#""'""#,
            r#""\""#,
            r#""\x1""#,
            r#""\x1g""#,
            r#""\x+1""#,
            r#""\xFF""#,
            r#""\x41""#,
            r#""\0""#,
            r#""\q""#,
            "\"\t\"",
            "\"\u{e4}\"",
        ];
        for line in wrong {
            assert_eq!(unquote(line), None, "{line}");
        }
    }

    #[test]
    fn what_was_packed_is_unpacked() {
        let place = tempfile::tempdir().expect("a folder");
        let [found, again] = ["found", "again"].map(|name| place.path().join(name));
        let corpus = Corpus::new(place.path().join("corpus"));
        fs::create_dir_all(corpus.folder.join("some")).expect("a folder");
        fs::create_dir(&found).expect("a folder");
        fs::write(corpus.folder.join("some/named"), b"named").expect("written");
        for (name, bytes) in ["z\n\u{ff}", "", "named", "a", "z\n\u{ff}"]
            .iter()
            .enumerate()
        {
            fs::write(found.join(name.to_string()), bytes).expect("written");
        }
        assert_eq!(corpus.pack("some", &found).expect("packed"), 3);
        let text = fs::read_to_string(corpus.file("some")).expect("a file");
        assert_eq!(text, "\"\"\n\"a\"\n\"z\\n\\xc3\\xbf\"\n");
        assert_eq!(
            corpus.targets().expect("targets"),
            ["some".to_owned()].into()
        );

        assert_eq!(corpus.unpack("some", &again).expect("unpacked"), 3);
        let files = ["line-1", "line-2", "line-3"].map(|name| fs::read(again.join(name)));
        let files = files.map(|bytes| bytes.expect("a file"));
        assert_eq!(files, [&b""[..], b"a", "z\n\u{ff}".as_bytes()]);

        let inputs = corpus.inputs("some").expect("inputs");
        let places: Vec<_> = inputs.iter().map(|input| input.place.as_str()).collect();
        let expected = [
            "some/named",
            "some.inputs:1",
            "some.inputs:2",
            "some.inputs:3",
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn a_line_that_is_no_input_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        let corpus = Corpus::new(place.path().to_owned());
        fs::write(corpus.file("some"), "\"a\"\n\"\\xf\"\n").expect("written");
        let error = corpus.inputs("some").expect_err("a wrong line");
        let text = error.to_string();
        assert!(text.starts_with("some.inputs:2: "), "{text}");
        assert!(text.ends_with(": \"\\xf\""), "{text}");
        assert!(corpus.unpack("some", &place.path().join("out")).is_err());
    }
}
