//! Names as their languages write them.
//!
//! | form | example | becomes |
//! | --- | --- | --- |
//! | Rust, both manglings | `_ZN4core3fmt5write17h0123456789abcdefE` | `core::fmt::write` |
//! | C++ (Itanium) | `_ZN3foo3barEi` | `foo::bar(int)` |
//! | Java in perf maps | `Lcom/example/Main;::run` | `com.example.Main.run` |
//! | JavaScript in perf maps | `JS:*run /srv/app.js:10:5` | `run /srv/app.js:10:5` |
//! | Python in perf maps | `py::run:/srv/app.py` | `run (/srv/app.py)` |

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};

/// Longer names stay as they are: reading them could take long.
const NAME_BYTES_MAX: usize = 4096;

/// The most bytes of a name as its language writes it: a short one can repeat its parts without end. One that is longer stays as it was.
const WRITTEN_BYTES_MAX: usize = 64 << 10;

/// How deep a C++ name may nest.
const DEPTH_MAX: u32 = 96;

/// A name as its language writes it; the name itself where none of them has made it.
pub fn demangle(name: &str) -> String {
    if name.len() > NAME_BYTES_MAX {
        return name.to_owned();
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return limited(|text| write!(text, "{rust:#}")).unwrap_or_else(|| name.to_owned());
    }
    if name.starts_with("_Z") || name.starts_with("__Z") {
        return cpp(name).unwrap_or_else(|| name.to_owned());
    }
    java(name)
        .or_else(|| javascript(name))
        .or_else(|| python(name))
        .unwrap_or_else(|| name.to_owned())
}

fn cpp(name: &str) -> Option<String> {
    let parsing = ParseOptions::default().recursion_limit(DEPTH_MAX);
    let symbol = Symbol::new_with_options(name, &parsing).ok()?;
    let writing = DemangleOptions::default().recursion_limit(DEPTH_MAX);
    limited(|text| symbol.structured_demangle(text, &writing))
}

/// A text that ends the writing where it gets too long.
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.0.len() + piece.len() > WRITTEN_BYTES_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(piece);
        Ok(())
    }
}

/// What is written; none where that fails or gets too long.
fn limited(write: impl FnOnce(&mut Limited) -> fmt::Result) -> Option<String> {
    let mut text = Limited(String::new());
    write(&mut text).ok()?;
    Some(text.0)
}

fn java(name: &str) -> Option<String> {
    let (class, method) = name.strip_prefix('L')?.split_once(";::")?;
    Some(format!("{}.{method}", class.replace('/', ".")))
}

/// V8 marks how far a function is optimised: `~`, `^`, `+` or `*`.
fn javascript(name: &str) -> Option<String> {
    const KINDS: [&str; 7] = [
        "JS:",
        "LazyCompile:",
        "Function:",
        "Script:",
        "Eval:",
        "RegExp:",
        "BytecodeHandler:",
    ];
    let rest = KINDS.iter().find_map(|kind| name.strip_prefix(kind))?;
    let plain = rest.trim_start_matches(['~', '^', '+', '*']).trim();
    match plain {
        "" => Some("(anonymous)".to_owned()),
        plain => Some(plain.to_owned()),
    }
}

fn python(name: &str) -> Option<String> {
    let (function, file) = name.strip_prefix("py::")?.rsplit_once(':')?;
    Some(format!("{function} ({file})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_as_in_their_languages() {
        for (mangled, expected) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            ("_Zgarbage", "_Zgarbage"),
            ("main", "main"),
            ("Lcom/example/Main;::run", "com.example.Main.run"),
            ("JS:*run /srv/app.js:10:5", "run /srv/app.js:10:5"),
            ("LazyCompile:~ /srv/app.js:1", "/srv/app.js:1"),
            ("JS:~", "(anonymous)"),
            ("py::run:/srv/app.py", "run (/srv/app.py)"),
            ("Interpreter", "Interpreter"),
        ] {
            assert_eq!(demangle(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn deep_names_end() {
        let deep = format!("_Z{}i", "PFv".repeat(1000));
        assert_eq!(demangle(&deep), deep);
        let long = "_Z".to_owned() + &"N".repeat(10_000);
        assert_eq!(demangle(&long), long);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(_Z|_R|L|JS:|py::|)[!-~]{0,60}") {
            demangle(&text);
        }
    }
}
