//! A small receiver of compressed frames, in two versions, for the story in `examples/profile`.
//!
//! - `receiver fresh` inflates each frame into a new buffer of [`FRAME_BYTES_MAX`], which is freed after the frame.
//! - `receiver kept` inflates all frames of a connection into one buffer.
//! - `receiver send ADDRESS FILE FRAMES PER_SECOND` sends pieces of FILE as frames, at that rate.
//!
//! A receiver prints its address, serves one connection, and prints how many frames, lines and lines with an error it has received. A
//! frame is a length of four bytes (big-endian) and so many bytes in the zlib format; each is answered by a byte.

use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// What a frame may be inflated to. The allocator of glibc takes blocks above 32 MiB from the system, and gives them back when they are
/// freed.
const FRAME_BYTES_MAX: usize = 64 << 20;

/// What a frame is inflated to here, about.
const FRAME_BYTES: usize = 1 << 20;

/// How many different frames are sent.
const FRAMES_DIFFERENT: usize = 8;

type Failure = Box<dyn Error + Send + Sync>;

/// Where frames are inflated to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Buffers {
    /// A new buffer for each frame.
    Fresh,
    /// One buffer for all frames.
    Kept,
}

/// What was received.
#[derive(Default)]
struct Counts {
    frames: u64,
    lines: u64,
    errors: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["fresh"] => serve(Buffers::Fresh),
        ["kept"] => serve(Buffers::Kept),
        ["send", address, file, frames, rate] => send(address, file, frames, rate),
        _ => Err("see the head of this program for its arguments".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "receiver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(buffers: Buffers) -> Result<(), Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    let (client, _) = listener.accept()?;
    let counts = receive(client, buffers)?;
    let Counts {
        frames,
        lines,
        errors,
    } = counts;
    Ok(writeln!(
        io::stdout(),
        "{frames} frames, {lines} lines, {errors} errors"
    )?)
}

fn receive(mut client: TcpStream, buffers: Buffers) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    let mut compressed = Vec::new();
    let mut kept = match buffers {
        Buffers::Fresh => Vec::new(),
        Buffers::Kept => vec![0; FRAME_BYTES_MAX],
    };
    while let Some(length) = length_of_frame(&mut client)? {
        compressed.resize(length, 0);
        client.read_exact(&mut compressed)?;
        match buffers {
            Buffers::Fresh => handle(&compressed, &mut vec![0; FRAME_BYTES_MAX], &mut counts)?,
            Buffers::Kept => handle(&compressed, &mut kept, &mut counts)?,
        }
        client.write_all(&[1])?;
    }
    Ok(counts)
}

/// The length of the next frame; none at the end.
fn length_of_frame(client: &mut TcpStream) -> Result<Option<usize>, Failure> {
    let mut length = [0; 4];
    match client.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let length = u32::from_be_bytes(length) as usize;
    match length <= FRAME_BYTES_MAX {
        true => Ok(Some(length)),
        false => Err("a frame is too large".into()),
    }
}

fn handle(compressed: &[u8], buffer: &mut [u8], counts: &mut Counts) -> Result<(), Failure> {
    let text = std::str::from_utf8(inflate(compressed, buffer)?)?;
    counts.frames += 1;
    for line in text.lines() {
        counts.lines += 1;
        counts.errors += u64::from(is_error(line));
    }
    Ok(())
}

fn inflate<'b>(compressed: &[u8], buffer: &'b mut [u8]) -> Result<&'b [u8], Failure> {
    let mut inflater = Decompress::new(true);
    match inflater.decompress(compressed, buffer, FlushDecompress::Finish)? {
        Status::StreamEnd => Ok(&buffer[..inflater.total_out() as usize]),
        Status::Ok | Status::BufError => Err("a frame is too large, or cut off".into()),
    }
}

/// Whether a line of an access log has a status of 500 or above.
fn is_error(line: &str) -> bool {
    let behind_request = line.splitn(3, '"').nth(2);
    behind_request.is_some_and(|rest| rest.starts_with(" 5"))
}

fn send(address: &str, file: &str, frames: &str, rate: &str) -> Result<(), Failure> {
    let (frames, rate): (u32, f64) = (frames.parse()?, rate.parse()?);
    let different = frames_of(&fs::read(file)?)?;
    let mut server = TcpStream::connect(address)?;
    server.set_nodelay(true)?;
    let start = Instant::now();
    for (number, frame) in (0..frames).zip(different.iter().cycle()) {
        let due = Duration::from_secs_f64(f64::from(number) / rate);
        thread::sleep(due.saturating_sub(start.elapsed()));
        server.write_all(frame)?;
        server.read_exact(&mut [0])?;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(writeln!(io::stdout(), "{frames} frames in {seconds:.1} s")?)
}

/// Pieces of a text of whole lines, each as a frame.
fn frames_of(text: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let mut frames = Vec::new();
    let mut rest = text;
    while frames.len() < FRAMES_DIFFERENT && !rest.is_empty() {
        let part = &rest[..rest.len().min(FRAME_BYTES)];
        let end = part.iter().rposition(|byte| *byte == b'\n');
        let end = end.ok_or("the file has no lines")? + 1;
        frames.push(deflate(&rest[..end])?);
        rest = &rest[end..];
    }
    match frames.is_empty() {
        true => Err("the file is empty".into()),
        false => Ok(frames),
    }
}

fn deflate(text: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut deflater = Compress::new(Compression::default(), true);
    let mut body = Vec::with_capacity(text.len() + 1024);
    match deflater.compress_vec(text, &mut body, FlushCompress::Finish)? {
        Status::StreamEnd => {}
        Status::Ok | Status::BufError => return Err("a frame was not compressed whole".into()),
    }
    let mut frame = u32::try_from(body.len())?.to_be_bytes().to_vec();
    frame.append(&mut body);
    Ok(frame)
}
