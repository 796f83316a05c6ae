//! One frame of zstd, RFC 8878, or one that is to be skipped.
//!
//! A failing call of the library does not tell how much it has decompressed before. So it gets its input in pieces, none
//! of which holds the end of one block and the start of the next: what was decompressed before the failure is known.

use zstd::zstd_safe::{
    DCtx, DParameter, InBuffer, OutBuffer, get_error_name, get_frame_content_size,
};

use super::{Event, Progress};

/// How a frame starts.
pub(super) const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// How a frame that is to be skipped starts: behind a byte from 0x50 to 0x5F.
pub(super) const SKIPPABLE_MAGIC: [u8; 3] = [0x2A, 0x4D, 0x18];

/// The largest window, as a power of two: 128 MiB, like the program `zstd` without further options.
const WINDOW_LOG_MAX: u32 = 27;

/// Length of the header of a block, which the library asks for together with the block before.
const BLOCK_HEADER_BYTES: usize = 3;

/// How much content the first frame of `data` says that it has; none where it does not say.
pub fn stated_bytes(data: &[u8]) -> Option<u64> {
    get_frame_content_size(data).ok().flatten()
}

/// Reads frames, one after the other.
pub(super) struct Frame {
    context: DCtx<'static>,
    /// How many bytes the library wants next.
    wanted: usize,
    /// Whether the library may hold content for which there was no space.
    holds_content: bool,
}

impl Frame {
    /// At the start of a frame; none without memory.
    pub(super) fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context
            .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
            .ok()?;
        Some(Self {
            context,
            wanted: 1,
            holds_content: false,
        })
    }

    /// Goes behind the magic number of another frame.
    pub(super) fn start(&mut self, magic: &[u8]) {
        let done = self.feed(magic, &mut []);
        debug_assert_eq!(done.consumed, magic.len(), "a magic number is taken");
        self.holds_content = false;
    }

    /// Reads on within the frame.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Progress {
        let piece = if self.holds_content {
            &[]
        } else {
            &input[..input.len().min(self.piece_bytes())]
        };
        // Calls that can do nothing are counted by the library, which fails after some of them.
        if piece.is_empty() && (!self.holds_content || output.is_empty()) {
            return Progress::stuck();
        }
        self.feed(piece, output)
    }

    fn feed(&mut self, piece: &[u8], output: &mut [u8]) -> Progress {
        let (mut from, mut to) = (InBuffer::around(piece), OutBuffer::around(output));
        let result = self.context.decompress_stream(&mut to, &mut from);
        let (consumed, produced) = (from.pos(), to.pos());
        self.holds_content = produced == output.len();
        let event = match result {
            Ok(0) => {
                self.holds_content = false;
                Event::End
            }
            Ok(wanted) => {
                self.wanted = wanted;
                Event::Going
            }
            Err(code) => Event::Failed(reason(code)),
        };
        Progress {
            consumed,
            produced,
            event,
        }
    }

    /// How much to give to the library: the rest of a block without the header of the next one.
    fn piece_bytes(&self) -> usize {
        match self.wanted.checked_sub(BLOCK_HEADER_BYTES) {
            None | Some(0) => self.wanted.max(1),
            Some(block) => block,
        }
    }
}

/// What the library says, with the limit where it names none.
fn reason(code: usize) -> String {
    match get_error_name(code) {
        "Frame requires too much memory for decoding" => {
            format!(
                "the window is larger than {} MiB",
                1 << (WINDOW_LOG_MAX - 20)
            )
        }
        name => {
            let mut letters = name.chars();
            let first = letters.next().map(|first| first.to_ascii_lowercase());
            first.into_iter().chain(letters).collect()
        }
    }
}
