//! A strict double of S3, for objects, uploads in parts and lists.
//!
//! It checks signatures (version 4), the least size of parts, that an upload is completed with the parts that it has, and conditions (`If-Match`).
//! An object is stored as a whole or not at all. Source: <https://docs.aws.amazon.com/AmazonS3/latest/API>.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::clickhouse::decoded;
use crate::http::{Answer, HttpServer, Taken};

/// The credentials that it takes.
pub const ACCESS_KEY: &str = "testing123";

/// The secret that belongs to them.
pub const SECRET_KEY: &str = "testing123secret";

/// The least size of a part that is not the last one.
const PART_BYTES_MIN: usize = 5 << 20;

/// Objects on a page of a list: fewer than S3 gives, so that tests see several.
const PAGE_OBJECTS: usize = 100;

/// Settings of components for the objects of a bucket below `logs`, in YAML.
pub fn settings(bucket: &str, server: &HttpServer) -> String {
    format!(
        "url: 's3://{bucket}/logs', endpoint: '{}', access_key_id: {ACCESS_KEY}, secret_access_key: {SECRET_KEY}",
        server.url()
    )
}

/// The same for one line.
pub fn one_line_settings(bucket: &str, server: &HttpServer) -> String {
    settings(bucket, server).replace(": ", "=").replace(',', "")
}

/// An S3. Clones are the same one.
#[derive(Clone)]
pub struct S3 {
    bucket: &'static str,
    store: Arc<Mutex<Bucket>>,
}

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, StoredObject>,
    uploads: BTreeMap<String, Upload>,
    next: usize,
    overwritten: usize,
}

struct StoredObject {
    content: Bytes,
    etag: String,
    written: Timestamp,
}

struct Upload {
    key: String,
    parts: BTreeMap<usize, Bytes>,
}

impl S3 {
    /// One with this bucket.
    pub fn new(bucket: &'static str) -> Self {
        Self {
            bucket,
            store: Arc::default(),
        }
    }

    /// A server of it that fails twice in so many requests, before or after it has done what it was asked.
    pub fn failing(&self, requests: usize) -> HttpServer {
        let s3 = self.clone();
        HttpServer::start(move |taken, number| match number % requests {
            4 => Answer::new(503),
            7 => {
                drop(s3.answer(taken));
                Answer::new(500)
            }
            _ => s3.answer(taken),
        })
    }

    /// Its objects by their keys.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        let store = self.store.lock();
        let objects = store.objects.iter();
        let objects = objects.map(|(key, object)| (key.clone(), object.content.clone()));
        objects.collect()
    }

    /// Puts an object, in the place of one that has its key.
    pub fn put(&self, key: &str, content: impl Into<Bytes>) {
        self.store.lock().put(key.to_owned(), content.into());
    }

    /// How many uploads are neither completed nor aborted.
    pub fn uploads(&self) -> usize {
        self.store.lock().uploads.len()
    }

    /// How often an object took the place of another one.
    pub fn overwritten(&self) -> usize {
        self.store.lock().overwritten
    }

    /// What it answers to a request.
    pub fn answer(&self, taken: &Taken) -> Answer {
        if let Err(why) = signed(taken) {
            return error(403, "SignatureDoesNotMatch", &why);
        }
        let (path, query) = taken.path.split_once('?').unwrap_or((&taken.path, ""));
        let path = decoded(path);
        let mut parts = path.trim_start_matches('/').splitn(2, '/');
        if parts.next() != Some(self.bucket) {
            return error(404, "NoSuchBucket", "The specified bucket does not exist");
        }
        let key = parts.next().unwrap_or_default().to_owned();
        let parameter = |name: &str| {
            let mut pairs = query
                .split('&')
                .map(|it| it.split_once('=').unwrap_or((it, "")));
            pairs
                .find(|(key, _)| *key == name)
                .map(|(_, value)| decoded(value))
        };
        let mut bucket = self.store.lock();
        match (taken.method.as_str(), parameter("uploadId")) {
            ("POST", None) if parameter("uploads").is_some() => bucket.begin(key),
            ("PUT", Some(id)) => {
                let number = parameter("partNumber").and_then(|text| text.parse().ok());
                bucket.part(&id, number.unwrap_or(0), taken.body.clone())
            }
            ("POST", Some(id)) => bucket.complete(&id, &taken.text()),
            ("DELETE", Some(id)) => match bucket.uploads.remove(&id) {
                Some(_) => Answer::new(204),
                None => no_upload(),
            },
            ("PUT", None) => {
                let etag = bucket.put(key, taken.body.clone());
                Answer::new(200).header("etag", etag)
            }
            ("GET", None) if key.is_empty() && parameter("list-type").is_some() => {
                let prefix = parameter("prefix").unwrap_or_default();
                let after = parameter("continuation-token").or(parameter("start-after"));
                bucket.list(&prefix, &after.unwrap_or_default())
            }
            ("HEAD" | "GET", None) => match bucket.objects.get(&key) {
                Some(object) => object.answer(taken),
                None => error(404, "NoSuchKey", "The specified key does not exist"),
            },
            ("DELETE", None) => {
                bucket.objects.remove(&key);
                Answer::new(204)
            }
            _ => error(405, "MethodNotAllowed", "not part of this double"),
        }
    }
}

impl StoredObject {
    /// The object, or the range of it that is asked for, if it is the version that is asked for.
    fn answer(&self, taken: &Taken) -> Answer {
        let condition = taken.header("if-match");
        if !condition.is_empty() && condition != self.etag {
            let message = "At least one of the pre-conditions you specified did not hold";
            return error(412, "PreconditionFailed", message);
        }
        let range = taken.header("range").strip_prefix("bytes=");
        let range = range.and_then(|range| {
            let (first, last) = range.split_once('-')?;
            let first: usize = first.parse().ok()?;
            let last: usize = last.parse().unwrap_or(usize::MAX);
            Some(first..(last.saturating_add(1)).min(self.content.len()))
        });
        let answer = match range {
            None => Answer::new(200).body(self.content.clone()),
            Some(range) if range.is_empty() => {
                return error(
                    416,
                    "InvalidRange",
                    "The requested range is not satisfiable",
                );
            }
            Some(range) => Answer::new(206)
                .header(
                    "content-range",
                    format!(
                        "bytes {}-{}/{}",
                        range.start,
                        range.end - 1,
                        self.content.len()
                    ),
                )
                .body(self.content.slice(range)),
        };
        let written = self.written.strftime("%a, %d %b %Y %H:%M:%S GMT");
        answer
            .header("etag", self.etag.clone())
            .header("last-modified", written.to_string())
    }
}

impl Bucket {
    /// Gives the ETag.
    fn put(&mut self, key: String, content: Bytes) -> String {
        let etag = format!("\"{}\"", &hex(&Sha256::digest(&content))[..32]);
        let object = StoredObject {
            content,
            etag: etag.clone(),
            written: Timestamp::now(),
        };
        self.overwritten += usize::from(self.objects.insert(key, object).is_some());
        etag
    }

    fn list(&self, prefix: &str, after: &str) -> Answer {
        let objects = self.objects.iter();
        let mut found = objects.filter(|(key, _)| key.starts_with(prefix) && ***key > *after);
        let mut page = String::new();
        let mut last = "";
        for (key, object) in found.by_ref().take(PAGE_OBJECTS) {
            last = key;
            let _ = write!(
                page,
                "<Contents><Key>{key}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Contents>",
                object.written.strftime("%Y-%m-%dT%H:%M:%S.000Z"),
                object.etag.replace('"', "&quot;"),
                object.content.len(),
            );
        }
        if found.next().is_some() {
            let _ = write!(
                page,
                "<NextContinuationToken>{last}</NextContinuationToken>"
            );
        }
        Answer::new(200).body(format!(
            "<?xml version=\"1.0\"?><ListBucketResult>{page}</ListBucketResult>"
        ))
    }

    fn begin(&mut self, key: String) -> Answer {
        self.next += 1;
        let id = format!("upload-{}", self.next);
        let parts = BTreeMap::new();
        let answer = format!(
            "<InitiateMultipartUploadResult><Key>{key}</Key><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        );
        self.uploads.insert(id, Upload { key, parts });
        Answer::new(200).body(answer)
    }

    fn part(&mut self, id: &str, number: usize, content: Bytes) -> Answer {
        let Some(upload) = self.uploads.get_mut(id) else {
            return no_upload();
        };
        upload.parts.insert(number, content);
        Answer::new(200).header("etag", format!("\"part-{number}\""))
    }

    fn complete(&mut self, id: &str, wanted: &str) -> Answer {
        let Some(upload) = self.uploads.get(id) else {
            return no_upload();
        };
        let numbers: Vec<usize> = upload.parts.keys().copied().collect();
        let named = |number: &usize| wanted.contains(&format!("part-{number}"));
        if numbers != (1..=numbers.len()).collect::<Vec<_>>() || !numbers.iter().all(named) {
            return error(
                400,
                "InvalidPart",
                "One or more of the parts could not be found",
            );
        }
        let last = numbers.len();
        let small =
            |(number, part): (&usize, &Bytes)| *number < last && part.len() < PART_BYTES_MIN;
        if upload.parts.iter().any(small) {
            return error(400, "EntityTooSmall", "A part is smaller than 5 MiB");
        }
        let Some(Upload { key, parts }) = self.uploads.remove(id) else {
            return no_upload();
        };
        let whole: Vec<Bytes> = parts.into_values().collect();
        let etag = self.put(key.clone(), whole.concat().into());
        Answer::new(200).body(format!(
            "<CompleteMultipartUploadResult><Key>{key}</Key><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        ))
    }
}

fn no_upload() -> Answer {
    error(404, "NoSuchUpload", "The specified upload does not exist")
}

fn error(status: u16, code: &str, message: &str) -> Answer {
    Answer::new(status).body(format!(
        "<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    ))
}

/// Whether the request is signed with the credentials, and what is wrong with it.
fn signed(taken: &Taken) -> Result<(), String> {
    let header = taken.header("authorization");
    let rest = header.strip_prefix("AWS4-HMAC-SHA256 ");
    let rest = rest.ok_or_else(|| format!("the header authorization: {header}"))?;
    let field = |name: &str| {
        let fields = rest.split(", ").filter_map(|field| field.split_once('='));
        let mut named = fields.filter(|(key, _)| *key == name);
        named
            .next()
            .map(|(_, value)| value)
            .ok_or(format!("no {name}"))
    };
    let scope = field("Credential")?;
    let scope = scope.strip_prefix(&format!("{ACCESS_KEY}/"));
    let scope = scope.ok_or("the access key is unknown")?;
    let hash = taken.header("x-amz-content-sha256");
    if hash != "UNSIGNED-PAYLOAD" && hash != hex(&Sha256::digest(&taken.body)) {
        return Err("the hash of the body is another one".to_owned());
    }
    let names = field("SignedHeaders")?;
    let (path, query) = taken.path.split_once('?').unwrap_or((&taken.path, ""));
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            if pair.contains('=') {
                pair.to_owned()
            } else {
                format!("{pair}=")
            }
        })
        .collect();
    pairs.sort();
    let headers = names.split(';').fold(String::new(), |mut text, name| {
        let _ = writeln!(text, "{name}:{}", taken.header(name).trim());
        text
    });
    let canonical = format!(
        "{}\n{path}\n{}\n{headers}\n{names}\n{hash}",
        taken.method,
        pairs.join("&")
    );
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{}\n{scope}\n{}",
        taken.header("x-amz-date"),
        hex(&Sha256::digest(canonical.as_bytes()))
    );
    let secret = format!("AWS4{SECRET_KEY}").into_bytes();
    let key = scope.split('/').fold(secret, |key, part| mac(&key, part));
    match hex(&mac(&key, &to_sign)) == field("Signature")? {
        true => Ok(()),
        false => Err("the signature is another one".to_owned()),
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
