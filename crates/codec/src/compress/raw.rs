//! Deflate without a header, with what a checkpoint needs: stops at block boundaries, the bits left over there, the window.
//!
//! No safe interface of zlib-rs, the decompressor in use here, has the bit count and the window, which checkpoints inside gzip
//! need, so this module calls its C interface. It is one of the four modules of the workspace that may hold `unsafe`, which a test
//! checks (`testkit/tests/tidy.rs`); what it gives out is safe.
//!
//! Invariants: the stream lies in a box, is initialised from [`Inflate::new`] until it is dropped, and its pointers into
//! the caller's slices are set anew before each use.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_uint};

use libz_rs_sys::{
    Z_BLOCK, Z_BUF_ERROR, Z_NO_FLUSH, Z_OK, Z_STREAM_END, inflate, inflateEnd,
    inflateGetDictionary, inflateInit2_, inflatePrime, inflateReset, inflateSetDictionary,
    z_stream, zlibVersion,
};

/// The largest window that deflate has, in bytes.
pub(super) const WINDOW_BYTES: usize = 32 * 1024;

/// The same as a power of two; negative for data without a header.
const WINDOW_BITS: c_int = -15;

/// In `data_type`: the last block has begun.
const IN_LAST_BLOCK: c_int = 64;

/// In `data_type`: a block has just ended.
const AT_BOUNDARY: c_int = 128;

/// Decompresses one deflate stream at a time. Takes 45 KiB of the heap.
pub(super) struct Inflate {
    stream: Box<z_stream>,
}

// SAFETY: the stream owns what `state` points to and nothing else has that pointer. `next_in` and `next_out` are read only
// inside of `step`, which sets them from slices that live as long as the call.
unsafe impl Send for Inflate {}

/// What one step did.
pub(super) struct Inflated {
    pub(super) consumed: usize,
    pub(super) produced: usize,
    pub(super) outcome: Outcome,
}

/// How a step ended.
pub(super) enum Outcome {
    /// With no input left or no space.
    Going,
    /// Behind a block, if asked for. There are the bits of the last consumed byte that are still unused, unless it was
    /// the last block.
    Boundary { bits: Option<u8> },
    /// Behind the last block. Bits that are left over in its last byte are consumed.
    End,
    /// Nothing can be read any more, for this reason.
    Failed(String),
}

impl Inflate {
    /// At the start of a stream; none without memory.
    pub(super) fn new() -> Option<Self> {
        let mut stream = Box::new(z_stream::default());
        let size = size_of::<z_stream>() as c_int;
        // SAFETY: the stream is a valid one without a state, as the default value is; version and size are those of
        // the library that is called.
        let code = unsafe { inflateInit2_(&raw mut *stream, WINDOW_BITS, zlibVersion(), size) };
        (code == Z_OK).then_some(Self { stream })
    }

    /// Goes to the start of another stream.
    pub(super) fn reset(&mut self) {
        // SAFETY: the stream is initialised.
        let code = unsafe { inflateReset(&raw mut *self.stream) };
        debug_assert_eq!(code, Z_OK, "an initialised stream can be reset");
    }

    /// Goes to a block boundary: `bits` of the byte before are still unread and have this value, and `window` are the
    /// last decompressed bytes. Says whether that is possible.
    pub(super) fn resume(&mut self, bits: u8, value: u8, window: &[u8]) -> bool {
        self.reset();
        let stream = &raw mut *self.stream;
        let length = window.len().min(WINDOW_BYTES);
        let window = &window[window.len() - length..];
        // SAFETY: the stream is initialised; the pointer and the length are those of a slice, which is only copied from.
        let codes = unsafe {
            [
                inflatePrime(stream, c_int::from(bits), c_int::from(value)),
                inflateSetDictionary(stream, window.as_ptr(), length as c_uint),
            ]
        };
        codes == [Z_OK; 2]
    }

    /// Decompresses until the input is consumed or the output full, or to the next block boundary.
    pub(super) fn step(&mut self, input: &[u8], output: &mut [u8], to_boundary: bool) -> Inflated {
        let most = c_uint::MAX as usize;
        let (available, space) = (input.len().min(most), output.len().min(most));
        self.stream.next_in = input.as_ptr();
        self.stream.avail_in = available as c_uint;
        self.stream.next_out = output.as_mut_ptr();
        self.stream.avail_out = space as c_uint;
        let flush = if to_boundary { Z_BLOCK } else { Z_NO_FLUSH };
        // SAFETY: the stream is initialised, and both pointers are good for the lengths beside them, to read from and to
        // write to.
        let code = unsafe { inflate(&raw mut *self.stream, flush) };
        Inflated {
            consumed: available - self.stream.avail_in as usize,
            produced: space - self.stream.avail_out as usize,
            outcome: match code {
                Z_STREAM_END => Outcome::End,
                Z_OK | Z_BUF_ERROR => self.place(to_boundary),
                _ => Outcome::Failed(self.reason()),
            },
        }
    }

    /// The last decompressed bytes, at most [`WINDOW_BYTES`].
    pub(super) fn window(&self) -> Vec<u8> {
        let mut window = Vec::with_capacity(WINDOW_BYTES);
        let mut length: c_uint = 0;
        // SAFETY: the stream is initialised, and the buffer has room for the largest window. It is given so much length
        // as was written into it, which is never more than that.
        unsafe {
            let code =
                inflateGetDictionary(&raw const *self.stream, window.as_mut_ptr(), &mut length);
            debug_assert_eq!(code, Z_OK, "an initialised stream has a window");
            window.set_len((length as usize).min(WINDOW_BYTES));
        }
        window
    }

    fn place(&self, to_boundary: bool) -> Outcome {
        let place = self.stream.data_type;
        if !to_boundary || place & AT_BOUNDARY == 0 {
            return Outcome::Going;
        }
        let bits = (place & (IN_LAST_BLOCK - 1)) as u8;
        // The library gives whole bytes back at a boundary. If it ever did not, there would be no place to go on from.
        let is_usable = place & IN_LAST_BLOCK == 0 && bits < 8;
        Outcome::Boundary {
            bits: is_usable.then_some(bits),
        }
    }

    fn reason(&self) -> String {
        if self.stream.msg.is_null() {
            return "invalid data".to_owned();
        }
        // SAFETY: what the library leaves here is a text of its own that lives for ever and ends with a zero.
        let text = unsafe { CStr::from_ptr(self.stream.msg) };
        text.to_string_lossy().into_owned()
    }
}

impl Drop for Inflate {
    fn drop(&mut self) {
        // SAFETY: the stream is initialised and is not used again.
        unsafe {
            inflateEnd(&raw mut *self.stream);
        }
    }
}
