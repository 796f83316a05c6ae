//! `geoip`: where an address is, and whose.
//!
//! The database is read into memory once and shared by all instances ([`database`]); each distinct address is looked up
//! once and its object remembered ([`crate::object_lookup`]). A text that was looked up before is not even
//! parsed ([`address`]).

mod database;

use std::hash::BuildHasher;
use std::io::Read;
use std::sync::Arc;

use batch::{ColumnBuilder, Span, Value};
use component::{Build, BuildContext, Example, Order, Processor, Spec};
use config::{ConfigError, Node, Positional};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::address::{self, Key};
use crate::object_cache::ObjectCache;
use crate::object_lookup::{ObjectLookup, Source, default_cache_entries};
use crate::text::first_of;
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

fn build(node: &Node, context: &BuildContext) -> Result<Box<dyn Processor>, ConfigError> {
    let config: Config = component::parse(node)?;
    let path = &config.database;
    let refuse = |reason: String| {
        node.nearest("database")
            .error(format!("cannot use the database `{path}`: {reason}"))
    };
    let mut bytes = Vec::new();
    disk::regular::open(path.as_ref())
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| refuse(error.to_string()))?;
    let database =
        Database::new(bytes, config.fields).map_err(|error| refuse(error.to_string()))?;
    let settings = (&*config.field, &*config.target, config.cache_entries);
    let addresses = Addresses {
        database: Arc::new(database),
        errors: 0,
    };
    Ok(Box::new(ObjectLookup::new(
        node, context, settings, addresses,
    )?))
}

/// The addresses that a database knows.
#[derive(Clone)]
struct Addresses {
    database: Arc<Database>,
    errors: u64,
}

impl Source for Addresses {
    type Key = Key;

    const VALUE: &'static str = "address";
    const TAG: &'static str = "_geoip_lookup_failure";
    const TAGS_UNKNOWN: bool = true;

    fn value(value: Value<'_>) -> Value<'_> {
        first_of(value)
    }

    #[inline]
    fn object(
        &mut self,
        text: &[u8],
        cache: &mut ObjectCache<Key>,
        objects: &mut ColumnBuilder,
    ) -> Option<Span> {
        let key = match Key::of_text(text) {
            Some(key) => key,
            None => Key::of_address(address::parse(text)?),
        };
        let hash = cache.state.hash_one(key);
        let write = |out: &mut Vec<u8>| self.write_object(text, out);
        cache.object(hash, |known| *known == key, || key, objects, write)
    }

    fn take_errors(&mut self) -> Option<(&'static str, u64)> {
        let errors = std::mem::take(&mut self.errors);
        (errors > 0).then_some(("database_errors", errors))
    }
}

impl Addresses {
    /// Appends the object of an address; `false` where the database does not know it, or the text is no address.
    fn write_object(&mut self, text: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(address) = address::parse(text) else {
            return false;
        };
        self.database
            .write_object(address, out)
            .unwrap_or_else(|_| {
                self.errors += 1;
                false
            })
    }
}

#[cfg(test)]
mod tests;
