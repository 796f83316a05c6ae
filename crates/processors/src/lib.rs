//! Processors, one file each.
//!
//! Adding one touches its own file and two lines here: its module and its place in [`SPECS`].

mod address;
mod assert;
mod cef;
mod csv;
mod data_type;
mod date;
mod dedupe;
mod derived;
mod device_event;
mod dissect;
mod dns;
mod drop_;
mod fingerprint;
mod flatten;
mod geoip;
mod grok;
mod head;
mod json;
mod keep;
mod keyed;
mod kubernetes;
mod kv;
mod leef;
mod literal;
mod logfmt;
mod lookup;
mod metric;
mod names;
mod nest;
mod number;
mod object_cache;
mod object_lookup;
mod redact;
mod reduce;
mod remembered;
mod remove;
mod rename;
mod reshape;
mod sample;
mod set;
mod setting_words;
mod sort;
mod split;
mod summarize;
mod tail;
#[cfg(test)]
mod testing;
mod text;
mod throttle;
mod top;
mod truncate;
mod url;
mod user_agent;
mod where_;
mod xml;

use component::Spec;

/// Every processor, by name.
pub static SPECS: &[Spec] = &[
    assert::SPEC,
    cef::SPEC,
    csv::SPEC,
    date::SPEC,
    dedupe::SPEC,
    dissect::SPEC,
    dns::SPEC,
    drop_::SPEC,
    fingerprint::SPEC,
    flatten::SPEC,
    geoip::SPEC,
    grok::SPEC,
    head::SPEC,
    json::SPEC,
    keep::SPEC,
    kubernetes::SPEC,
    kv::SPEC,
    leef::SPEC,
    logfmt::SPEC,
    lookup::SPEC,
    metric::SPEC,
    nest::SPEC,
    redact::SPEC,
    reduce::SPEC,
    remove::SPEC,
    rename::SPEC,
    sample::SPEC,
    set::SPEC,
    sort::SPEC,
    split::SPEC,
    summarize::SPEC,
    tail::SPEC,
    throttle::SPEC,
    top::SPEC,
    truncate::SPEC,
    url::SPEC,
    user_agent::SPEC,
    where_::SPEC,
    xml::SPEC,
];
