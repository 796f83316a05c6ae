//! The bytes of an object.
//!
//! An object of a bucket comes in windows of [`WINDOW_BYTES`], each with a request of its own that asks for the version that was listed, so that
//! no two versions are ever mixed, and a reader that waits for the queue keeps no connection open. While a window is read, the next one is on its
//! way: an object takes two windows of memory at most.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use component::Stop;
use component::activity::carry;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore};
use rustix::io::pread;
use stores::Bucket;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::listed::{Listed, StoreError, version_of};
use super::store::{SourceStore, of_object};
use crate::file::pread::retry;
use crate::paths::meta::Meta;
use crate::reading::content::{ByteSource, Got};
use crate::reading::describe::describe;

/// How many bytes of an object are asked for at once.
const WINDOW_BYTES: u64 = 4 << 20;

/// The bytes of an object, as it was listed.
pub(super) struct ObjectSource {
    bytes: ObjectBytes,
    size: u64,
    /// Why there are no more.
    failure: Option<StoreError>,
}

enum ObjectBytes {
    File(File),
    Windows(Windows),
}

/// The object in a bucket, with the window that is being read.
struct Windows {
    bucket: Arc<dyn Bucket>,
    path: Path,
    shown: String,
    if_match: Option<String>,
    size: u64,
    stop: Stop,
    window: Bytes,
    /// Where the window begins.
    start: u64,
    next: Option<Fetching>,
}

/// A window on its way. Dropped, it is not asked for any more.
struct Fetching {
    start: u64,
    task: JoinHandle<Result<Bytes, StoreError>>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ObjectSource {
    /// Opens an object.
    ///
    /// # Errors
    /// It is not there, or another one.
    pub(super) fn open(
        store: &SourceStore,
        listed: &Listed,
        stop: &Stop,
    ) -> Result<Self, StoreError> {
        let bytes = match store {
            SourceStore::Folder(root) => {
                let opened = File::open(root.join(&listed.key));
                let file = opened.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => StoreError::Gone,
                    _ => StoreError::Failed(describe(&error)),
                })?;
                let meta = Meta::of_fd(&file);
                let meta = meta.map_err(|error| StoreError::Failed(describe(&error)))?;
                if version_of(&meta) != listed.version {
                    return Err(StoreError::Changed);
                }
                ObjectBytes::File(file)
            }
            SourceStore::Bucket(bucket, location) => {
                let path = Path::parse(&listed.key);
                ObjectBytes::Windows(Windows {
                    bucket: bucket.clone(),
                    path: path.map_err(|error| StoreError::Refused(error.to_string()))?,
                    shown: location.shown(),
                    if_match: listed.has_etag.then(|| quoted(&listed.version)),
                    size: listed.size,
                    stop: stop.clone(),
                    window: Bytes::new(),
                    start: 0,
                    next: None,
                })
            }
        };
        Ok(Self {
            bytes,
            size: listed.size,
            failure: None,
        })
    }

    /// The file, where it is one.
    pub(super) fn file(&self) -> Option<&File> {
        match &self.bytes {
            ObjectBytes::File(file) => Some(file),
            ObjectBytes::Windows(_) => None,
        }
    }

    /// Why reading failed.
    pub(super) fn failure(&mut self, error: &io::Error) -> StoreError {
        let failure = self.failure.take();
        failure.unwrap_or_else(|| StoreError::Failed(describe(error)))
    }

    /// Reads until the buffer is full or the object ends, not decompressed.
    ///
    /// # Errors
    /// Why there are no more bytes; [`Self::failure`] says more.
    pub(super) fn read_all(&mut self, mut offset: u64, mut into: &mut [u8]) -> io::Result<usize> {
        let room = into.len();
        while !into.is_empty() {
            let Got::Bytes(read) = self.read(offset, into)? else {
                break;
            };
            offset += read as u64;
            into = &mut into[read..];
        }
        Ok(room - into.len())
    }
}

/// An ETag as requests give it.
fn quoted(etag: &str) -> String {
    match etag.starts_with("W/") {
        true => etag.to_owned(),
        false => format!("\"{etag}\""),
    }
}

impl ByteSource for ObjectSource {
    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<Got> {
        if offset >= self.size {
            return Ok(Got::End);
        }
        let room = into.len().min((self.size - offset) as usize);
        let read = match &mut self.bytes {
            ObjectBytes::File(file) => retry(|| pread(file.as_fd(), &mut into[..room], offset))?,
            ObjectBytes::Windows(windows) => {
                let bytes = windows.at(offset, &mut self.failure)?;
                let read = bytes.len().min(room);
                into[..read].copy_from_slice(&bytes[..read]);
                read
            }
        };
        match read {
            0 => Ok(Got::Replaced),
            read => Ok(Got::Bytes(read)),
        }
    }

    fn compressed<'a>(
        &'a mut self,
        offset: u64,
        scratch: &'a mut [u8],
        _: bool,
    ) -> io::Result<Option<&'a [u8]>> {
        if offset >= self.size {
            return Ok(Some(&[]));
        }
        match &mut self.bytes {
            ObjectBytes::File(file) => {
                let room = scratch.len().min((self.size - offset) as usize);
                let read = retry(|| pread(file.as_fd(), &mut scratch[..room], offset))?;
                Ok(Some(&scratch[..read]))
            }
            ObjectBytes::Windows(windows) => Ok(Some(windows.at(offset, &mut self.failure)?)),
        }
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }
}

impl Windows {
    /// The bytes at `offset`, which lies before the end, as many as there are.
    fn at(&mut self, offset: u64, failure: &mut Option<StoreError>) -> io::Result<&[u8]> {
        let is_there = |start: u64, len: usize| start <= offset && offset - start < len as u64;
        if !is_there(self.start, self.window.len()) {
            let fetched = self.fetch(offset);
            self.window = fetched.map_err(|error| {
                let text = io::Error::other(error.text().to_owned());
                *failure = Some(error);
                text
            })?;
            self.start = offset;
            let end = offset + self.window.len() as u64;
            self.next = (end < self.size).then(|| self.begin(end));
        }
        Ok(&self.window[(offset - self.start) as usize..])
    }

    fn fetch(&mut self, offset: u64) -> Result<Bytes, StoreError> {
        let next = self.next.take().filter(|next| next.start == offset);
        let mut next = next.unwrap_or_else(|| self.begin(offset));
        let stop = self.stop.clone();
        Handle::current().block_on(async {
            tokio::select! {
                () = stop.stopped() => Err(StoreError::Stopped),
                fetched = &mut next.task => match fetched {
                    Ok(fetched) => fetched,
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    Err(_) => Err(StoreError::Stopped),
                },
            }
        })
    }

    /// Asks for a window.
    fn begin(&self, start: u64) -> Fetching {
        let end = self.size.min(start + WINDOW_BYTES);
        let options = GetOptions {
            range: Some(GetRange::Bounded(start..end)),
            if_match: self.if_match.clone(),
            ..GetOptions::default()
        };
        let (bucket, path, shown) = (self.bucket.clone(), self.path.clone(), self.shown.clone());
        let fetch = async move {
            let got = bucket.get_opts(&path, options).await;
            let got = got.map_err(|error| of_object(&error, &shown))?;
            let bytes = got.bytes().await;
            let bytes = bytes.map_err(|error| of_object(&error, &shown))?;
            match bytes.len() as u64 == end - start {
                true => Ok(bytes),
                false => Err(StoreError::Failed(format!(
                    "{shown}: the store sent {} bytes of {}",
                    bytes.len(),
                    end - start
                ))),
            }
        };
        Fetching {
            start,
            task: Handle::current().spawn(carry(fetch)),
        }
    }
}

#[cfg(test)]
mod tests {
    use config::parse_yaml;
    use stores::{Location, StoreSettings};
    use testkit::http::HttpServer;
    use testkit::s3::{ACCESS_KEY, S3, SECRET_KEY};
    use tokio::runtime::Runtime;

    use super::*;

    fn store(server: &HttpServer) -> SourceStore {
        let yaml = format!(
            "{{endpoint: '{}', access_key_id: {ACCESS_KEY}, secret_access_key: {SECRET_KEY}}}",
            server.url()
        );
        let node = parse_yaml(&config::Source::new("t.yaml", &yaml)).expect("YAML");
        let (settings, _) = StoreSettings::divide(&node).expect("settings");
        let location = Location::new(&node, "s3://lake").expect("a location");
        let client = settings.client(&node, &location).expect("a client");
        let client = client.expect("a bucket has one");
        SourceStore::Bucket(client.bucket, Arc::new(location))
    }

    fn first(store: &SourceStore) -> Listed {
        let mut listing = store.list(None).expect("a list");
        let next = Handle::current().block_on(listing.next());
        next.expect("an object").expect("it is listed")
    }

    #[test]
    fn an_object_comes_in_windows_of_one_version() {
        let runtime = Runtime::new().expect("a runtime");
        let _entered = runtime.enter();
        let s3 = S3::new("lake");
        let taken = s3.clone();
        let server = HttpServer::start(move |request, _| taken.answer(request));
        let content: Vec<u8> = (0..2_500_000u32).flat_map(u32::to_le_bytes).collect();
        s3.put("a", content.clone());
        let store = store(&server);
        let listed = first(&store);
        assert_eq!(listed.size, content.len() as u64);
        let stop = Stop::default();
        let mut source = ObjectSource::open(&store, &listed, &stop).expect("opened");
        let mut all = vec![0; content.len() + 1];
        let read = source.read_all(0, &mut all).expect("read");
        assert!(all[..read] == content, "{read} bytes");
        let mut some = [0; 100];
        source.read_all(5 << 20, &mut some).expect("read");
        assert_eq!(some[..], content[5 << 20..][..100]);

        // Written again, it is another object, which is not mixed with this one and not deleted in its place.
        s3.put("a", content[1..].to_vec());
        let error = source.read_all(0, &mut some).expect_err("it changed");
        assert_eq!(source.failure(&error), StoreError::Changed);
        let delete = |listed: &Listed| Handle::current().block_on(store.delete(listed));
        assert_eq!(delete(&listed), Err(StoreError::Changed));
        let listed = first(&store);
        assert_eq!(delete(&listed), Ok(()));
        assert!(s3.objects().is_empty());
        assert_eq!(delete(&listed), Ok(()));
        let mut source = ObjectSource::open(&store, &listed, &stop).expect("opened");
        let error = source.read_all(0, &mut some).expect_err("it is gone");
        assert_eq!(source.failure(&error), StoreError::Gone);
    }
}
