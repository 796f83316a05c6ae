//! What a database knows of an address, as a JSON object with the names of the Elastic Common Schema.

use std::net::IpAddr;

use batch::json;
use maxminddb::{MaxMindDbError, Reader};
use schemars::JsonSchema;
use serde::Deserialize;

/// What kind of facts a database holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Places with a location.
    City,
    /// Countries.
    Country,
    /// Autonomous systems.
    Asn,
}

impl Kind {
    /// The kind of a database by the type that it names, such as `GeoLite2-City` or `DBIP-ASN-Lite`.
    pub fn of(database_type: &str) -> Option<Self> {
        let has = |word: &str| database_type.contains(word);
        if has("City") || has("Enterprise") || has("Insights") {
            Some(Self::City)
        } else if has("Country") {
            Some(Self::Country)
        } else {
            (has("ASN") || has("ISP")).then_some(Self::Asn)
        }
    }
}

/// A fact that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(super) enum Fact {
    /// The address itself: `ip`.
    #[serde(rename = "ip")]
    Ip,
    /// `geo.city_name`.
    #[serde(rename = "city_name")]
    CityName,
    /// `geo.continent_code`.
    #[serde(rename = "continent_code")]
    ContinentCode,
    /// `geo.continent_name`.
    #[serde(rename = "continent_name")]
    ContinentName,
    /// `geo.country_iso_code`.
    #[serde(rename = "country_iso_code")]
    CountryIsoCode,
    /// `geo.country_name`.
    #[serde(rename = "country_name")]
    CountryName,
    /// `geo.region_iso_code`, such as `US-CA`.
    #[serde(rename = "region_iso_code")]
    RegionIsoCode,
    /// `geo.region_name`.
    #[serde(rename = "region_name")]
    RegionName,
    /// `geo.postal_code`.
    #[serde(rename = "postal_code")]
    PostalCode,
    /// `geo.timezone`.
    #[serde(rename = "timezone")]
    Timezone,
    /// `geo.location.lat` and `geo.location.lon`.
    #[serde(rename = "location")]
    Location,
    /// `as.number`.
    #[serde(rename = "as.number")]
    AsNumber,
    /// `as.organization.name`.
    #[serde(rename = "as.organization.name")]
    AsOrganizationName,
}

/// An entry of a database of any kind; what an entry does not have stays empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry<'a> {
    #[serde(borrow)]
    city: Region<'a>,
    continent: Region<'a>,
    country: Region<'a>,
    /// From the largest to the smallest.
    subdivisions: Vec<Region<'a>>,
    postal: Region<'a>,
    location: Location<'a>,
    autonomous_system_number: Option<u32>,
    autonomous_system_organization: Option<&'a str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Region<'a> {
    code: Option<&'a str>,
    iso_code: Option<&'a str>,
    #[serde(borrow)]
    names: Names<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Names<'a> {
    en: Option<&'a str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Location<'a> {
    latitude: Option<f64>,
    longitude: Option<f64>,
    time_zone: Option<&'a str>,
}

/// Why a file cannot be used as a database.
#[derive(Debug, thiserror::Error)]
pub(super) enum DatabaseError {
    #[error("it is not a MaxMind database: {0}")]
    Unreadable(MaxMindDbError),
    #[error("it is of the type `{0}`; City, Country and ASN databases are known")]
    UnknownType(String),
}

/// A database in memory.
#[derive(Debug)]
pub(super) struct Database {
    reader: Reader<Vec<u8>>,
    kind: Kind,
    /// The facts to write; all there are when empty.
    wanted: Vec<Fact>,
}

impl Database {
    /// A database from the bytes of its file.
    ///
    /// # Errors
    /// It is no database, or one of another kind.
    pub fn new(bytes: Vec<u8>, wanted: Vec<Fact>) -> Result<Self, DatabaseError> {
        let reader = Reader::from_source(bytes).map_err(DatabaseError::Unreadable)?;
        let database_type = &reader.metadata().database_type;
        let kind = Kind::of(database_type)
            .ok_or_else(|| DatabaseError::UnknownType(database_type.clone()))?;
        Ok(Self {
            reader,
            kind,
            wanted,
        })
    }

    /// Appends the object for an address; `false`, and nothing appended, when the database knows nothing of it, or a City
    /// database no location.
    ///
    /// # Errors
    /// A damaged file.
    pub fn write_object(&self, address: IpAddr, out: &mut Vec<u8>) -> Result<bool, MaxMindDbError> {
        let Some(entry) = self.reader.lookup(address)?.decode::<Entry<'_>>()? else {
            return Ok(false);
        };
        let facts = self.facts(&entry);
        let found = match self.kind {
            Kind::City => entry.location.latitude.is_some() && entry.location.longitude.is_some(),
            Kind::Country | Kind::Asn => facts.iter().any(|(_, _, value)| value.is_some()),
        };
        if found {
            self.write(address, &facts, out);
        }
        Ok(found)
    }

    /// The facts of an entry, with the object they stand in, and how they are written.
    fn facts<'a>(&self, entry: &Entry<'a>) -> [(Fact, &'static str, Option<Written<'a>>); 12] {
        let text = |text: Option<&'a str>| text.map(Written::Text);
        let region = entry.subdivisions.last();
        let country = entry.country.iso_code;
        let region_code =
            region.and_then(|region| Some(Written::Joined(country?, region.iso_code?)));
        let location = entry.location.latitude.zip(entry.location.longitude);
        [
            (Fact::CityName, "geo", text(entry.city.names.en)),
            (Fact::ContinentCode, "geo", text(entry.continent.code)),
            (Fact::ContinentName, "geo", text(entry.continent.names.en)),
            (Fact::CountryIsoCode, "geo", text(country)),
            (Fact::CountryName, "geo", text(entry.country.names.en)),
            (Fact::RegionIsoCode, "geo", region_code),
            (
                Fact::RegionName,
                "geo",
                text(region.and_then(|region| region.names.en)),
            ),
            (Fact::PostalCode, "geo", text(entry.postal.code)),
            (Fact::Timezone, "geo", text(entry.location.time_zone)),
            (
                Fact::Location,
                "geo",
                location.map(|(lat, lon)| Written::Point(lat, lon)),
            ),
            (
                Fact::AsNumber,
                "as",
                entry.autonomous_system_number.map(Written::Number),
            ),
            (
                Fact::AsOrganizationName,
                "as",
                entry.autonomous_system_organization.map(Written::Name),
            ),
        ]
    }

    fn write(
        &self,
        address: IpAddr,
        facts: &[(Fact, &'static str, Option<Written<'_>>)],
        out: &mut Vec<u8>,
    ) {
        let wanted = |fact: Fact| self.wanted.is_empty() || self.wanted.contains(&fact);
        let mut separator = b'{';
        if wanted(Fact::Ip) {
            out.extend_from_slice(b"{\"ip\":");
            json::write_string(out, address.to_string().as_bytes());
            separator = b',';
        }
        for object in ["geo", "as"] {
            let mut open = false;
            for (fact, within, value) in facts {
                let Some(value) = value
                    .as_ref()
                    .filter(|_| *within == object && wanted(*fact))
                else {
                    continue;
                };
                if open {
                    out.push(b',');
                } else {
                    out.push(separator);
                    json::write_string(out, object.as_bytes());
                    out.extend_from_slice(b":{");
                    open = true;
                }
                value.write(fact.key(), out);
            }
            if open {
                out.push(b'}');
                separator = b',';
            }
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

impl Fact {
    /// The key within its object.
    fn key(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::CityName => "city_name",
            Self::ContinentCode => "continent_code",
            Self::ContinentName => "continent_name",
            Self::CountryIsoCode => "country_iso_code",
            Self::CountryName => "country_name",
            Self::RegionIsoCode => "region_iso_code",
            Self::RegionName => "region_name",
            Self::PostalCode => "postal_code",
            Self::Timezone => "timezone",
            Self::Location => "location",
            Self::AsNumber => "number",
            Self::AsOrganizationName => "organization",
        }
    }
}

/// The value of a fact.
enum Written<'a> {
    Text(&'a str),
    /// Two texts with a hyphen between them.
    Joined(&'a str, &'a str),
    Number(u32),
    /// An object with a name.
    Name(&'a str),
    /// Latitude and longitude.
    Point(f64, f64),
}

impl Written<'_> {
    fn write(&self, key: &str, out: &mut Vec<u8>) {
        json::write_string(out, key.as_bytes());
        out.push(b':');
        match *self {
            Self::Text(text) => json::write_string(out, text.as_bytes()),
            Self::Joined(one, two) => json::write_string(out, format!("{one}-{two}").as_bytes()),
            Self::Number(number) => json::write_u64(out, u64::from(number)),
            Self::Name(name) => {
                out.extend_from_slice(b"{\"name\":");
                json::write_string(out, name.as_bytes());
                out.push(b'}');
            }
            Self::Point(lat, lon) => {
                out.extend_from_slice(b"{\"lat\":");
                json::write_f64(out, lat);
                out.extend_from_slice(b",\"lon\":");
                json::write_f64(out, lon);
                out.push(b'}');
            }
        }
    }
}
