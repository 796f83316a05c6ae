//! The sample database of the repository: a few networks that the generator's addresses fall into, and one that tests
//! look up.
//!
//! The places are made up for the sample, except that the test's network is placed in London as in the well-known test
//! databases of the format.

use serde_json::{Value, json};

use crate::mmdb::write_database;

/// A network with its city, its country's code and name, its continent's code, its latitude and longitude.
type City = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    f64,
    f64,
);

const PLACES: [City; 6] = [
    (
        "81.2.69.160/27",
        "London",
        "GB",
        "United Kingdom",
        "EU",
        51.5142,
        -0.0931,
    ),
    (
        "83.149.0.0/16",
        "Moscow",
        "RU",
        "Russia",
        "EU",
        55.7522,
        37.6156,
    ),
    (
        "66.249.0.0/16",
        "Mountain View",
        "US",
        "United States",
        "NA",
        37.3860,
        -122.0838,
    ),
    (
        "130.237.0.0/16",
        "Stockholm",
        "SE",
        "Sweden",
        "EU",
        59.3333,
        18.05,
    ),
    (
        "144.76.0.0/16",
        "Falkenstein",
        "DE",
        "Germany",
        "EU",
        50.4777,
        12.3649,
    ),
    (
        "2001:db8::/32",
        "Nowhere",
        "ZZ",
        "Documentation",
        "EU",
        0.0,
        0.0,
    ),
];

/// The bytes of a small database of the type GeoLite2-City.
pub fn sample_city_database() -> Vec<u8> {
    let networks: Vec<(&str, Value)> = PLACES
        .iter()
        .map(|place| (place.0, record(place)))
        .collect();
    write_database("GeoLite2-City", &networks)
}

fn record(&(_, city, country, country_name, continent, latitude, longitude): &City) -> Value {
    json!({
        "city": { "names": { "en": city } },
        "continent": { "code": continent },
        "country": { "iso_code": country, "names": { "en": country_name } },
        "location": { "latitude": latitude, "longitude": longitude },
    })
}
