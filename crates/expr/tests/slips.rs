//! What parses and cannot be meant is refused, with what was likely meant.

use expr::Expr;

#[test]
fn dashed_names_and_repeated_keys() {
    for (text, at, message) in [
        (
            "has(user-agent)",
            4..14,
            "`has` takes a field, and this is a subtraction; a name with a dash in it stands in backticks: has(`user-agent`)",
        ),
        (
            "http.user-agent == 'curl'",
            0..15,
            "this is a subtraction, which is never equal to a text; a name with a dash in it stands in backticks: http.`user-agent`",
        ),
        (
            "status > 1 && 'a' != x-forwarded-for",
            21..36,
            "this is a subtraction, which is never equal to a text; a name with a dash in it stands in backticks: `x-forwarded-for`",
        ),
        (
            "user-agent in ['a', 'b']",
            0..10,
            "this is a subtraction, which is never equal to a text; a name with a dash in it stands in backticks: `user-agent`",
        ),
        (
            "http.user-agent.contains('curl')",
            0..32,
            "this is a subtraction, and true or false cannot be subtracted; a name with a dash in it stands in backticks: http.`user-agent`",
        ),
        (
            "{'a': 1, 'b': 2, 'a': 3}[x]",
            17..20,
            "the key `a` is given twice",
        ),
        ("{404: x, '404': y}", 9..14, "the key `404` is given twice"),
    ] {
        let error = Expr::parse(text).expect_err(text);
        assert_eq!((error.at.clone(), &*error.message), (at, message), "{text}");
    }
    // Subtractions, and keys that only turn out to be the same.
    for text in [
        "total-used > 5",
        "total-used == '5'",
        "user - agent == 'x'",
        "a-b.size()",
        "has(a) ? a-b : 0",
        "{a: 1, b: 2}",
    ] {
        assert!(Expr::parse(text).is_ok(), "{text}");
    }
}
