//! Runtimes that make code while they run, or interpret it: which one a process is of, by the files that it maps.

/// A runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Runtime {
    /// A Java virtual machine.
    Jvm,
    /// Node.js.
    Node,
    /// CPython 3, with its minor version where the file's name has it.
    Python(Option<u8>),
    /// Ruby.
    Ruby,
}

impl Runtime {
    /// The runtime that a mapped file belongs to.
    pub fn of(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or_default();
        match name {
            "libjvm.so" => return Some(Self::Jvm),
            "node" | "nodejs" => return Some(Self::Node),
            _ => {}
        }
        let name = name.strip_prefix("lib").unwrap_or(name);
        if let Some(version) = name.strip_prefix("python3") {
            let version = version.strip_prefix('.').unwrap_or_default();
            let digits = version.bytes().take_while(u8::is_ascii_digit).count();
            return Some(Self::Python(version[..digits].parse().ok()));
        }
        let is_ruby = |rest: &str| rest.bytes().all(|byte| !byte.is_ascii_alphabetic());
        let version = name.strip_prefix("ruby")?.split(".so").next()?;
        is_ruby(version).then_some(Self::Ruby)
    }

    /// Whether the functions of programs are run by functions of its file.
    pub fn is_interpreter(self) -> bool {
        matches!(self, Self::Python(_) | Self::Ruby)
    }

    /// Whether a file is Node's, or the library that some builds of Node keep V8 in.
    pub fn has_v8(path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        Self::of(path) == Some(Self::Node) || name.starts_with("libnode.so")
    }

    /// The name that its code has in place of a file's.
    pub fn binary(self) -> &'static str {
        match self {
            Self::Jvm => "[jvm]",
            Self::Node => "[node]",
            Self::Python(_) => "[python]",
            Self::Ruby => "[ruby]",
        }
    }

    /// The one that makes code, of two in a process: a virtual machine that a program of another runtime has loaded, else the first.
    pub fn or(self, other: Option<Self>) -> Self {
        match other {
            Some(Self::Jvm) => Self::Jvm,
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_tell_the_runtime() {
        for (path, runtime) in [
            ("/usr/lib/jvm/x/lib/server/libjvm.so", Some(Runtime::Jvm)),
            ("/usr/bin/node", Some(Runtime::Node)),
            ("/usr/bin/python3", Some(Runtime::Python(None))),
            ("/usr/bin/python3.9", Some(Runtime::Python(Some(9)))),
            (
                "/usr/lib/libpython3.13.so.1.0",
                Some(Runtime::Python(Some(13))),
            ),
            ("/usr/lib/libruby-3.1.so.3.1.2", Some(Runtime::Ruby)),
            ("/usr/bin/ruby3.1", Some(Runtime::Ruby)),
            ("/usr/bin/ruby", Some(Runtime::Ruby)),
            ("/usr/bin/rubyfmt", None),
            ("/usr/lib/libc.so.6", None),
            ("", None),
        ] {
            assert_eq!(Runtime::of(path), runtime, "{path}");
        }
        assert!(Runtime::has_v8("/usr/bin/node") && Runtime::has_v8("/usr/lib/libnode.so.108"));
        assert!(!Runtime::has_v8("/usr/bin/ruby"));
        let python = Runtime::Python(None);
        assert_eq!(python.or(Some(Runtime::Jvm)), Runtime::Jvm);
        assert_eq!(python.or(Some(Runtime::Node)), python);
    }
}
