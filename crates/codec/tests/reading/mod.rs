//! Reads a content in pieces, with stops and resumes, and checks what must hold at every chunk.

use std::sync::Arc;

use batch::{Budget, BufferPool, Encoding, FieldPath, HostInfo, JsonWriter, Stream, Value};
use codec::{
    BATCH_EVENTS_MAX, Check, Chunk, Chunker, Decoder, LAYOUT_BYTES, Layout, Resume, Settings,
};

/// An event: text or JSON, start, end, tags, and what a container says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub text: String,
    pub start: u64,
    pub end: u64,
    pub tags: String,
    pub stream: String,
    /// Empty where it is the time of reading.
    pub time: String,
}

/// How a content is read.
#[derive(Debug, Clone)]
pub struct Plan {
    pub buffer: usize,
    /// Sizes of reads, in turn.
    pub reads: Vec<usize>,
    pub take_every: usize,
    pub release_every: usize,
    /// Offsets at which waiting records are flushed, ascending.
    pub flushes: Vec<u64>,
    /// After how many chunks each run stops, in turn; the last run goes to the end.
    pub stops: Vec<usize>,
    /// Stop at each flush.
    pub stop_at_flush: bool,
}

impl Plan {
    /// Everything at once.
    pub fn simple() -> Self {
        Self {
            buffer: 1 << 20,
            reads: vec![1 << 20],
            take_every: 1,
            release_every: 1000,
            flushes: Vec::new(),
            stops: Vec::new(),
            stop_at_flush: false,
        }
    }
}

/// The events of a content, as many runs as the plan has stops.
pub fn read(content: &[u8], settings: &Settings, plan: &Plan) -> Vec<Event> {
    let mut resume = Resume::default();
    let mut events = Vec::new();
    let mut accounted = 0;
    let mut flushes = plan.flushes.clone();
    let mut stops = plan.stops.iter();
    loop {
        let mut run = Run::new(content, settings, plan, &resume);
        let stop = stops.next().copied();
        let is_over = run.go(stop, &mut flushes);
        events.append(&mut run.events);
        accounted += run.accounted;
        resume = run.resume.clone();
        if is_over {
            break;
        }
    }
    assert_eq!(
        accounted,
        content.len() as u64,
        "every byte is accounted for once"
    );
    events
}

struct Run<'a> {
    content: &'a [u8],
    plan: &'a Plan,
    pool: BufferPool,
    chunker: Chunker,
    decoder: Decoder,
    encoding: Encoding,
    is_csv: bool,
    origin: u64,
    position: u64,
    accounted: u64,
    chunks: usize,
    resume: Resume,
    events: Vec<Event>,
}

impl<'a> Run<'a> {
    fn new(content: &'a [u8], settings: &Settings, plan: &'a Plan, resume: &Resume) -> Self {
        let before = &content[..resume.offset as usize];
        assert!(resume.check.matches(before));
        assert_eq!(resume.check, Check::of(before));
        let tail = &before[before.len() - usize::from(resume.check.len)..];
        let mut chunker = Chunker::resume(settings, resume, tail);
        if resume.offset > 0 {
            chunker.set_header(settings.header_of(content));
            if settings.has_layout() {
                let layout = Layout::of(content, content.len() < LAYOUT_BYTES);
                chunker.set_layout(layout.expect("all of it is there"));
            }
        }
        Self {
            content,
            plan,
            pool: Budget::new(64 << 20).pool(64 << 20, plan.buffer),
            chunker,
            decoder: Decoder::new(settings, &Arc::new(HostInfo { name: "h".into() })),
            encoding: settings.encoding,
            is_csv: settings.csv.is_some(),
            origin: resume.offset,
            position: resume.offset,
            accounted: 0,
            chunks: 0,
            resume: resume.clone(),
            events: Vec::new(),
        }
    }

    /// Whether the content was read to its end.
    fn go(&mut self, stop: Option<usize>, flushes: &mut Vec<u64>) -> bool {
        let is_over = |run: &Self| stop.is_some_and(|stop| run.chunks >= stop);
        let (mut turn, mut released) = (0, usize::MAX);
        while self.position < self.content.len() as u64 {
            if is_over(self) {
                return false;
            }
            if self.chunker.is_full()
                || (turn % self.plan.take_every == 0 && self.chunker.is_ready())
            {
                let chunk = self.chunker.take().expect("it is ready");
                self.decode(chunk);
                continue;
            }
            if turn % self.plan.release_every == 0 && turn != released {
                released = turn;
                self.chunker.release();
                assert!(self.chunker.needs().is_some(), "the buffer was given back");
            }
            if let Some(size) = self.chunker.needs() {
                self.chunker.give(self.pool.take_sized(size));
                continue;
            }
            turn += 1;
            let limit = flushes
                .first()
                .map_or(u64::MAX, |at| (*at).max(self.position));
            self.fill(turn, limit);
            if self.position >= limit {
                flushes.remove(0);
                while let Some(chunk) = self.chunker.flush() {
                    self.decode(chunk);
                }
                assert!(!self.chunker.has_pending_record());
                if self.plan.stop_at_flush {
                    return false;
                }
            }
        }
        while !is_over(self) {
            let Some(chunk) = self.chunker.finish() else {
                let left = self.chunker.pending();
                self.accounted += left;
                assert_eq!(left, 0, "nothing is left at the end");
                return true;
            };
            self.decode(chunk);
        }
        false
    }

    fn fill(&mut self, turn: usize, limit: u64) {
        let rest =
            &self.content[self.position as usize..limit.min(self.content.len() as u64) as usize];
        let space = self.chunker.space();
        let size = self.plan.reads[turn % self.plan.reads.len()];
        let read = size.min(space.len()).min(rest.len());
        space[..read].copy_from_slice(&rest[..read]);
        self.chunker.advance(read);
        self.position += read as u64;
        self.check_sums();
    }

    fn check_sums(&self) {
        assert_eq!(
            self.accounted + self.chunker.pending() + self.chunker.skipped(),
            self.position - self.origin,
        );
    }

    fn decode(&mut self, mut chunk: Chunk) {
        self.chunks += 1;
        self.accounted += chunk.source_bytes;
        self.check_sums();
        let after = chunk.after.clone();
        assert_eq!(
            after.check,
            Check::of(&self.content[..after.offset as usize])
        );
        self.resume = after;
        let source_bytes = chunk.source_bytes;
        let before = self.events.len();
        let stream = Arc::new(Stream::unnamed(1));
        while let Some(batch) = self
            .decoder
            .next_batch(&stream, &mut chunk, 0)
            .expect("lines are never broken")
        {
            self.events
                .extend(events_of(&batch, self.encoding, self.is_csv));
        }
        let rows: u64 = self.events[before..]
            .iter()
            .map(|event| event.end - event.start)
            .sum();
        let dropped: u64 = self
            .decoder
            .take_dropped()
            .iter()
            .map(|dropped| dropped.bytes)
            .sum();
        assert_eq!(
            rows + dropped,
            source_bytes,
            "the chunk's bytes are those of its rows and the dropped ones"
        );
    }
}

fn events_of(batch: &batch::Batch, encoding: Encoding, is_csv: bool) -> Vec<Event> {
    assert!(!batch.is_empty() && batch.len() <= BATCH_EVENTS_MAX);
    let column = |name: &str| batch.column(&FieldPath::parse(name).expect("a path"));
    let names = ["message", "tags", "stream", "@timestamp"];
    let [messages, tags, streams, times] = names.map(column);
    let utf8 = |bytes| String::from_utf8(bytes).expect("texts are UTF-8");
    let text_of = |value: Value<'_>| {
        let mut text = Vec::new();
        value.write_text(&mut text);
        utf8(text)
    };
    let event = |row| {
        let text = match messages.value(row) {
            Value::Text(message) => utf8(message.to_vec()),
            _ => {
                assert!(encoding == Encoding::Json || is_csv, "text has a message");
                let mut text = Vec::new();
                JsonWriter::new(batch).write(row, &mut text);
                utf8(text)
            }
        };
        let time = text_of(times.value(row));
        Event {
            text,
            start: batch.origin().start(row),
            end: batch.origin().end(row),
            tags: sorted(&text_of(tags.value(row))),
            stream: text_of(streams.value(row)),
            time: if time == "1970-01-01T00:00:00.000Z" {
                String::new()
            } else {
                time
            },
        }
    };
    (0..batch.len()).map(event).collect()
}

/// The tags of a row, sorted: their order says nothing.
fn sorted(tags: &str) -> String {
    let mut tags: Vec<&str> = tags
        .split(['[', ']', ',', '"'])
        .filter(|tag| !tag.is_empty())
        .collect();
    tags.sort_unstable();
    tags.join(",")
}
