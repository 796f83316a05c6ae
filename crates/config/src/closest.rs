//! The word somebody meant.

/// The candidate that `word` is most likely a misspelling of; none when nothing is near.
///
/// Near means that at most a third of the letters differ (swapped neighbours count once), letter case aside, or that
/// the word is the beginning of one candidate alone.
pub fn closest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let word = word.to_lowercase();
    let allowed = word.chars().count().div_ceil(3).max(1);
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let nearest = candidates
        .iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&word, &candidate.to_lowercase()),
                *candidate,
            )
        })
        .filter(|(distance, candidate)| {
            *distance <= allowed && *distance < candidate.chars().count()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate);
    nearest.or_else(|| only_completion(&word, &candidates))
}

fn only_completion<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    if word.chars().count() < 3 {
        return None;
    }
    let mut completions = candidates
        .iter()
        .filter(|c| c.to_lowercase().starts_with(word));
    let first = completions.next().copied();
    first.filter(|_| completions.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant() {
        let names = [
            "pattern",
            "patterns",
            "field",
            "elasticsearch",
            "stdout",
            "if",
        ];
        for (word, expected) in [
            ("patern", Some("pattern")),
            ("Field", Some("field")),
            ("feild", Some("field")),
            ("elastic", Some("elasticsearch")),
            ("sdtout", Some("stdout")),
            ("quux", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(closest(word, names), expected, "{word}");
        }
    }
}
