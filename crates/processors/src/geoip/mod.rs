//! `geoip`: where an address is, and whose.
//!
//! The database is read into memory once and shared by all instances ([`database`]); each distinct address is looked up
//! once and its object remembered ([`crate::object_cache`]). A text that was looked up before is not even
//! parsed ([`address`]).

mod address;
mod database;

use std::hash::BuildHasher;
use std::sync::Arc;

use batch::{
    Batch, Bitmap, Cell, ColumnBuilder, Edit, Failures, FieldPath, FieldRead, Span, Value,
};
use component::{Build, BuildContext, Example, Order, Processor, Spec};
use config::{ConfigError, Node, Positional};
use foldhash::fast::RandomState;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::object_cache::ObjectCache;
use crate::text::first_of;
use address::Key;
use database::{Database, Fact};

/// The `geoip` processor.
pub const SPEC: Spec = Spec {
    name: "geoip",
    aliases: &[],
    summary: "Looks up an IP address in a MaxMind database: city, country, coordinates, autonomous system.",
    description: DESCRIPTION,
    positional: Positional::fields(&["field", "database"]),
    one_line: &[],
    examples: &[
        Example {
            title: "The city of a client, and an address that no database knows",
            stage: "geoip clientip database=GeoLite2-City.mmdb",
            input: "{\"clientip\":\"81.2.69.142\"}\n{\"clientip\":\"127.0.0.1\"}",
            output: "{\"clientip\":\"81.2.69.142\",\"geoip\":{\"ip\":\"81.2.69.142\",\"geo\":{\"city_name\":\"London\",\
                     \"continent_code\":\"EU\",\"continent_name\":\"Europe\",\"country_iso_code\":\"GB\",\"country_name\":\"United Kingdom\",\
                     \"region_iso_code\":\"GB-ENG\",\"region_name\":\"England\",\"timezone\":\"Europe/London\",\
                     \"location\":{\"lat\":51.5142,\"lon\":-0.0931}}}}\n\
                     {\"clientip\":\"127.0.0.1\",\"tags\":[\"_geoip_lookup_failure\"]}",
        },
        Example {
            title: "The network of a source, beside what is there",
            stage: "geoip source.ip database=GeoLite2-ASN.mmdb target=source fields=[as.number, as.organization.name]",
            input: r#"{"source":{"ip":"81.2.69.142"}}"#,
            output: r#"{"source":{"ip":"81.2.69.142","as":{"number":64500,"organization":{"name":"Example Networks"}}}}"#,
        },
    ],
    schema: |generator| generator.subschema_for::<Config>(),
    build: Build::Processor {
        order: Order::Stateless,
        sees_sealed: false,
        build,
    },
};

const DESCRIPTION: &str = "\
Reads City, Country and ASN databases in the MaxMind format (GeoIP2, GeoLite2, DB-IP). The results are
written below `target` under the names of the Elastic Common Schema: `ip`; `geo.city_name`, `geo.continent_code`,
`geo.continent_name`, `geo.country_iso_code`, `geo.country_name`, `geo.region_iso_code`, `geo.region_name`, `geo.postal_code`,
`geo.timezone`, `geo.location.lat` and `geo.location.lon`; `as.number` and `as.organization.name`. Names are English. Two
lookups may share a target: the second adds to what the first wrote.

If the field is a list of addresses, such as a split `X-Forwarded-For` header, the first one is looked up.

Text that is empty or not an IP address, an address that is not in the database, and an entry without a location in a City
database are tagged `_geoip_lookup_failure` (or `tag`; with an empty `tag`, not at all). This is not a failure: later processors
still run. If the field is absent or null, nothing happens.

The whole database is kept in memory. A new version of the file takes effect when the pipeline starts again.
";

/// The settings of `geoip`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The field that holds the address.
    field: String,
    /// The path of the database file.
    #[serde(deserialize_with = "config::paths")]
    database: String,
    /// The object to write into.
    #[serde(default = "default_target")]
    target: String,
    /// The results to write. Default: all that the database has.
    #[serde(default)]
    fields: Vec<Fact>,
    /// How many distinct addresses each worker remembers.
    #[serde(default = "default_cache_entries")]
    cache_entries: usize,
}

fn default_target() -> String {
    "geoip".to_owned()
}

fn default_cache_entries() -> usize {
    10_000
}

#[derive(Clone)]
struct GeoIp {
    field: FieldPath,
    target: FieldPath,
    tag: Arc<str>,
    database: Arc<Database>,
    cache: ObjectCache<Key>,
    state: RandomState,
    /// The text of a value that is not a text.
    text: Vec<u8>,
    lookups: u64,
    misses: u64,
    errors: u64,
}

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = component::parse(node)?;
    if config.cache_entries == 0 {
        return Err(node
            .nearest("cache_entries")
            .error("the cache needs room for one address at least"));
    }
    let path = &config.database;
    let refuse = |reason: String| {
        node.nearest("database")
            .error(format!("cannot use the database `{path}`: {reason}"))
    };
    let bytes = std::fs::read(path).map_err(|error| refuse(error.to_string()))?;
    let database = Database::new(bytes, config.fields).map_err(refuse)?;
    Ok(Box::new(GeoIp {
        field: crate::names::field(node, "field", &config.field)?,
        target: crate::names::field(node, "target", &config.target)?,
        tag: context.tag_or("_geoip_lookup_failure"),
        database: Arc::new(database),
        cache: ObjectCache::new(config.cache_entries),
        state: RandomState::default(),
        text: Vec::new(),
        lookups: 0,
        misses: 0,
        errors: 0,
    }))
}

impl Processor for GeoIp {
    fn process(&mut self, batch: &mut Batch, rows: &Bitmap) -> Failures {
        let source = batch.column(&self.field);
        let mut objects = self.cache.column(batch.len());
        let mut unknown = Bitmap::none(batch.len());
        for row in rows.iter() {
            let object = match source.value(row) {
                Value::Missing | Value::Null => continue,
                Value::Text(text) => self.object(text, &mut objects),
                other => {
                    let mut text = std::mem::take(&mut self.text);
                    text.clear();
                    first_of(other).write_text(&mut text);
                    let object = self.object(&text, &mut objects);
                    self.text = text;
                    object
                }
            };
            match object {
                Some(span) => objects.set(row, Cell::Json(span)),
                None => unknown.insert(row),
            }
        }
        let mut failures = Failures::none();
        // In many logs no database knows any of a batch's addresses: then there is nothing to write.
        if !objects.is_untouched() {
            let objects = objects.finish();
            self.cache.keep(&objects);
            let mut edit = Edit::new();
            edit.merge(Some(self.target.clone()), objects, false);
            failures.extend_refused(batch.apply(edit), &self.tag);
        }
        batch.add_tag(&unknown, &self.tag);
        failures
    }

    fn reads(&self) -> Vec<Arc<FieldRead>> {
        vec![Arc::new(FieldRead::always(self.field.clone()))]
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        let [lookups, misses, errors] =
            [&mut self.lookups, &mut self.misses, &mut self.errors].map(std::mem::take);
        let mut counters = vec![("cache_hits", lookups - misses), ("cache_misses", misses)];
        if errors > 0 {
            counters.push(("database_errors", errors));
        }
        counters
    }
}

impl GeoIp {
    /// The object for an address, from the cache or made now; nothing where the database does not know it, or the text is
    /// no address.
    #[inline]
    fn object(&mut self, text: &[u8], objects: &mut ColumnBuilder) -> Option<Span> {
        let key = match Key::of_text(text) {
            Some(key) => key,
            None => Key::of_address(address::parse(text)?),
        };
        self.lookups += 1;
        let hash = self.state.hash_one(key);
        match self.cache.get(hash, |known| *known == key) {
            Some(object) => object,
            None => self.look_up(text, key, hash, objects),
        }
    }

    #[cold]
    fn look_up(
        &mut self,
        text: &[u8],
        key: Key,
        hash: u64,
        objects: &mut ColumnBuilder,
    ) -> Option<Span> {
        self.misses += 1;
        let mut known = Ok(false);
        let span = objects.append(|out| {
            if let Some(address) = address::parse(text) {
                known = self.database.write_object(address, out);
            }
        });
        if known.is_err() {
            self.errors += 1;
        }
        let object = known.unwrap_or(false).then_some(span);
        self.cache.insert(hash, key, object);
        object
    }
}

#[cfg(test)]
mod tests;
