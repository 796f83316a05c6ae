//! Flame graphs: one self-contained HTML page, and SVG.
//!
//! Functions called by the same callers stand on each other; the wider, the more processor time. The page searches, zooms, filters by label and
//! lists the costliest functions, all without any other file. The SVG is a picture with tooltips.
//!
//! With two profiles the page compares them: widths are those of the second, red what takes more than before and blue what takes less.
//!
//! # Limits
//! The picture leaves out what is narrower than [`SVG_SHARE_MIN`] of it. The page says so where small stacks of the profile were counted at their
//! callers ([`crate::store::small`]). Everything that comes from a profile is text in the page, whatever it holds.

mod svg;
mod tree;

use serde_json::{Value, json};

use crate::advice::{self, Kind, Rule};
use crate::cost::Rates;
use crate::filter::Filter;
use crate::profile::Profile;
use crate::store::small;
use tree::{CallTree, Lists};

pub use svg::{SVG_SHARE_MIN, svg};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What a page says beside the profile.
#[derive(Debug, Clone)]
pub struct Options {
    /// The title.
    pub title: String,
    /// What a core costs.
    pub rates: Rates,
}

/// The page of a profile, with the samples that a filter takes.
pub fn html(profile: &Profile, filter: &Filter, options: &Options) -> String {
    let mut tree = CallTree::default();
    tree.add(profile, filter, 0, 1.0);
    page(&tree, &[profile], options)
}

/// The page that compares two profiles. Processor times of the first are multiplied by `scale`, so that both are of the same amount of work or time.
pub fn html_diff(
    before: &Profile,
    after: &Profile,
    filter: &Filter,
    scale: f64,
    options: &Options,
) -> String {
    let mut tree = CallTree::default();
    tree.add(before, filter, 0, scale);
    tree.add(after, filter, 1, 1.0);
    page(&tree, &[before, after], options)
}

fn data(tree: &CallTree, profiles: &[&Profile], options: &Options) -> Value {
    let lists = tree.lists();
    let window = |profile: &&Profile| {
        json!({
            "start": profile.window.start_ns / 1_000_000,
            "seconds": profile.window.duration_ns as f64 / 1e9,
            "hz": profile.frequency_hz,
            "lost": profile.lost,
        })
    };
    json!({
        "title": options.title,
        "windows": profiles.iter().map(window).collect::<Vec<_>>(),
        "rates": {
            "usd": options.rates.usd_per_core_hour,
            "co2": options.rates.kw_per_core * options.rates.co2_tonnes_per_kwh * options.rates.pue,
        },
        "texts": lists.texts,
        "rule_of": rules_of(&lists),
        "rules": advice::rules().iter().map(rule).collect::<Vec<_>>(),
        "frames": lists.frames,
        "parents": lists.parents,
        "nodes": lists.nodes,
        "labels": lists.labels,
        "samples": lists.samples,
    })
}

/// Of each function, the number of its rule from 1 on; 0 where there is none.
fn rules_of(lists: &Lists) -> Vec<usize> {
    let number = |[name, binary, _]: &[usize; 3]| {
        let rule = advice::of_names(&lists.texts[*name], &lists.texts[*binary])?;
        advice::rules().iter().position(|known| known == rule)
    };
    let numbers = lists.frames.iter().map(number);
    numbers
        .map(|number| number.map_or(0, |index| index + 1))
        .collect()
}

/// A rule as the page shows it. Its source is named without the scheme: a page holds no address that a browser would fetch.
fn rule(rule: &Rule) -> Value {
    json!({
        "title": rule.title,
        "advice": rule.advice,
        "source": rule.source_url.trim_start_matches("https://"),
        "kernel": rule.kind == Kind::Kernel,
    })
}

/// Puts the pieces together. A text of JSON holds `<` in strings alone, where it can be written otherwise; so no script can end in it.
fn page(tree: &CallTree, profiles: &[&Profile], options: &Options) -> String {
    let data = data(tree, profiles, options).to_string();
    let data = data.replace('<', "\\u003c");
    let note = small::note(profiles).unwrap_or_default();
    let mut page = String::with_capacity(PAGE.len() + STYLE.len() + SCRIPT.len() + data.len());
    let mut rest = PAGE;
    for (mark, piece) in [
        ("{{title}}", &*escaped(&options.title)),
        ("{{style}}", STYLE),
        ("{{note}}", &*escaped(&note)),
        ("{{data}}", &*data),
        ("{{script}}", SCRIPT),
    ] {
        if let Some((before, behind)) = rest.split_once(mark) {
            page.push_str(before);
            page.push_str(piece);
            rest = behind;
        }
    }
    page.push_str(rest);
    page
}

/// A text as HTML and XML show it; what they cannot hold is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => {}
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Frame, Weight};

    fn profile(name: &'static str, samples: u64) -> Profile {
        let mut profile = Profile::default();
        let stack = profile.stack([Frame::function("main", "/bin/a"), Frame::function(name, "")]);
        let labels = profile.labels(&[("host", "<h>")]);
        let cpu_ns = samples * 1_000_000;
        profile.add(stack, labels, Weight { samples, cpu_ns });
        profile
    }

    fn options() -> Options {
        Options {
            title: "a <b> & \"c\"".to_owned(),
            rates: Rates::X86_64,
        }
    }

    #[test]
    fn names_stay_text() {
        const EVIL: &str = "</script><script>alert(1)</script>\u{1}";
        let page = html(&profile(EVIL, 1), &Filter::default(), &options());
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script").count(), 2);
        assert!(page.contains("<title>a &lt;b&gt; &amp; &quot;c&quot;</title>"));
        let picture = svg(&profile(EVIL, 1), &Filter::default(), &options());
        assert!(!picture.contains("<script"), "{picture}");
        assert!(picture.contains("&lt;/script&gt;"), "{picture}");
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = html(&profile("work", 1), &Filter::default(), &options());
        for outside in ["http://", "https://", " src=", "import(", "fetch("] {
            assert!(
                !page.replace("http://www.w3.org/", "").contains(outside),
                "{outside}"
            );
        }
    }

    #[test]
    fn small_stacks_are_told_of() {
        let mut part = profile("work", 3);
        let page = html(&part, &Filter::default(), &options());
        assert!(page.contains("<p id=\"note\"></p>"));
        part.merge(&profile(small::SMALL, 1), |_| true);
        let page = html(&part, &Filter::default(), &options());
        let note = "<p id=\"note\">25.0 % of the processor time is in functions called [small]: ";
        assert!(page.contains(note), "{page}");
    }

    #[test]
    fn functions_of_known_kinds_have_their_rule() {
        let page = html(&profile("malloc", 1), &Filter::default(), &options());
        let data = page.split_once("type=\"application/json\">").unwrap().1;
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        let numbers: Vec<u64> = serde_json::from_value(data["rule_of"].clone()).unwrap();
        assert_eq!(numbers[0], 0);
        let rule = &data["rules"][numbers[1] as usize - 1];
        assert_eq!(rule["title"], "Allocation");
    }

    #[test]
    fn the_data_is_json_again() {
        let before = profile("work", 4);
        let page = html_diff(
            &before,
            &profile("other", 6),
            &Filter::default(),
            0.5,
            &options(),
        );
        let data = page.split_once("type=\"application/json\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["windows"].as_array().unwrap().len(), 2);
        // Node, labels, and for each side samples and microseconds.
        assert_eq!(
            data["samples"],
            json!([[2, 0, 2.0, 2000.0, 0, 0], [3, 0, 0, 0, 6.0, 6000.0]])
        );
        assert_eq!(
            data["texts"][data["frames"][1][0].as_u64().unwrap() as usize],
            "work"
        );
    }
}
