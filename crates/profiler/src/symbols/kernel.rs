//! The kernel's functions, from `/proc/kallsyms`.
//!
//! Lines are `ADDRESS TYPE NAME [MODULE]`, addresses in hexadecimal. Those without the right to see them read zeros
//! (`Documentation/admin-guide/sysctl/kernel.rst`, `kptr_restrict`).
//!
//! # Limits
//! Names are kept in one text: some 200,000 functions take about 8 MiB.

use std::fs;
use std::io;

/// Why the kernel's functions have no names.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The system refuses.
    #[error("cannot read /proc/kallsyms: {0}")]
    Io(#[from] io::Error),
    /// Addresses are hidden.
    #[error(
        "the kernel hides its addresses: set the sysctl kernel.kptr_restrict to 0, or give the program the capability CAP_SYSLOG; until then functions of the kernel are shown as addresses"
    )]
    Hidden,
}

/// What the kernel's addresses are valid for: it puts itself elsewhere each time it starts. In hexadecimal; empty where it does not say.
pub fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.chars().filter(char::is_ascii_hexdigit).collect()
}

/// A function.
#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    /// Where its name is.
    start: u32,
    bytes: u16,
}

/// The functions of a kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Empty for one that does not run here.
    boot: String,
    names: String,
    functions: Vec<Function>,
}

/// Code beyond this from the beginning of the last function before it is of none.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;

impl Kernel {
    /// The functions of the kernel that runs.
    ///
    /// # Errors
    /// They cannot be read, or are hidden.
    pub fn running() -> Result<Self, KernelError> {
        let kernel = Self::parse(&String::from_utf8_lossy(&fs::read("/proc/kallsyms")?))?;
        Ok(Self {
            boot: boot_id(),
            ..kernel
        })
    }

    /// Reads the text of `/proc/kallsyms`.
    ///
    /// # Errors
    /// All addresses are zero.
    pub fn parse(text: &str) -> Result<Self, KernelError> {
        let mut kernel = Self {
            boot: String::new(),
            names: String::new(),
            functions: Vec::new(),
        };
        for line in text.lines() {
            let mut fields = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let is_code = matches!(kind, "t" | "T" | "w" | "W" | "i");
            let address = u64::from_str_radix(address, 16).unwrap_or(0);
            if !is_code || address == 0 {
                continue;
            }
            let place = (u32::try_from(kernel.names.len()), u16::try_from(name.len()));
            if let (Ok(start), Ok(bytes)) = place {
                kernel.names.push_str(name);
                kernel.functions.push(Function {
                    address,
                    start,
                    bytes,
                });
            }
        }
        if kernel.functions.is_empty() {
            return Err(KernelError::Hidden);
        }
        // Of several names of one address the first counts.
        kernel.functions.sort_by_key(|function| function.address);
        kernel.functions.dedup_by_key(|function| function.address);
        Ok(kernel)
    }

    /// Whether addresses are of this kernel since it started last, by what [`boot_id`] said; those of unknown ones are taken to be.
    pub fn has(&self, boot: &str) -> bool {
        boot.is_empty() || self.boot.is_empty() || boot == self.boot
    }

    /// The function at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let behind = self
            .functions
            .partition_point(|function| function.address <= address);
        let function = self.functions.get(behind.checked_sub(1)?)?;
        if address - function.address > FUNCTION_BYTES_MAX {
            return None;
        }
        let start = function.start as usize;
        self.names.get(start..start + usize::from(function.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_below_an_address_has_it() {
        let text = "0000000000000010 T first\n0000000000000020 t second [mod]\n\
                    0000000000000020 T alias\n0000000000000018 D data\nbad\n";
        let kernel = Kernel::parse(text).unwrap();
        for (address, name) in [
            (0xf, None),
            (0x10, Some("first")),
            (0x1f, Some("first")),
            (0x20, Some("second")),
            (0x10_0020, Some("second")),
            (0x20_0021, None),
        ] {
            assert_eq!(kernel.name(address), name, "{address:x}");
        }
    }

    #[test]
    fn hidden_addresses_are_told() {
        for text in ["", "0000000000000000 T start\n"] {
            let error = Kernel::parse(text).unwrap_err();
            assert!(error.to_string().contains("kptr_restrict"), "{error}");
        }
    }
}
