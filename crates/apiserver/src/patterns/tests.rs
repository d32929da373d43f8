use super::{Pattern, reader::rewritten};

/// As Go 1.26 says it.
#[test]
fn patterns_are_refused_as_by_go() {
    for (pattern, why) in [
        ("(", "missing closing ): `(`"),
        ("a(b|c", "missing closing ): `a(b|c`"),
        ("a)b", "unexpected ): `a)b`"),
        ("x[a-z", "missing closing ]: `[a-z`"),
        ("[]a", "missing closing ]: `[]a`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("[a--c]", "invalid character class range: `a--`"),
        ("[[:nope:]]", "invalid character class range: `[:nope:]`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a|+?b", "missing argument to repetition operator: `+?`"),
        ("({2})", "missing argument to repetition operator: `{2}`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("(a+b??*)", "invalid nested repetition operator: `??*`"),
        ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
        ("a{3,2}", "invalid repeat count: `{3,2}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a{99999999999}?", "invalid repeat count: `{99999999999}`"),
        ("((a{100}){100}){2}", "invalid repeat count: `{100}`"),
        ("(a{34}b){2}(c{20}|d{600}){2}", "invalid repeat count: `{2}`"),
        (r"\y", r"invalid escape sequence: `\y`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        (r"\C", r"invalid escape sequence: `\C`"),
        (r"a\", "trailing backslash at end of expression: ``"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("(?x) a b", "invalid or unsupported Perl syntax: `(?x`"),
        ("(?i-)", "invalid or unsupported Perl syntax: `(?i-)`"),
        ("(?<=a)b", "invalid named capture: `(?<=a)b`"),
        ("(?P<a b>c)", "invalid named capture: `(?P<a b>`"),
        (r"\p{Nope}", r"invalid character class range: `\p{Nope}`"),
        (r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`"),
        (r"\p", r"invalid character class range: `\p`"),
    ] {
        let said = Pattern::new(pattern).map(|pattern| pattern.to_string()).map_err(|error| error.to_string());
        assert_eq!(said, Err(format!("error parsing regexp: {why}")), "{pattern}");
    }
}

/// What Rust reads in another way, if at all.
#[test]
fn patterns_mean_what_they_mean_in_go() {
    for (pattern, texts, others) in [
        ("^a{,2}$", &["a{,2}"][..], &["aa"][..]),
        ("^a{02}{$", &["a{02}{"], &["aa{"]),
        (r"^\d\w\s$", &["1a "], &["\u{661}a ", "1\u{e4} ", "1a\u{a0}", "1a\u{b}"]),
        (r"^[\d\s]+[^\w]$", &["1 \u{e4}"], &["1 a", "\u{661}a"]),
        (r"^\Qa.b\E*$", &["a.b", "a.bbb", "a."], &["axb", "a.ba.b"]),
        (r"^a\Q+*", &["a+*"], &["aa"]),
        ("^[a&&b]$", &["a", "&", "b"], &["c"]),
        ("^[[a]+]$", &["[]", "aa]"], &["]"]),
        (r"^\<\>\_$", &["<>_"], &["a"]),
        (r"^\b{start}a$", &[], &["a", "{start}a"]),
        (r"^\101\x42\x{43}\0$", &["ABC\0"], &["101BC0"]),
        ("^(?i)ab(?-i)c$", &["ABc", "abc"], &["abC"]),
        ("^(?ii:a)(?)b$", &["Ab"], &["AB"]),
        ("^a(?i)*B$", &["aab", "b"], &["AB"]),
        (r"^a{2}\Q\E?$", &["", "aa"], &["a"]),
        ("^(?<a>x)(?P<a>y)$", &["xy"], &["x"]),
        (r"^\bä$", &[], &["ä"]),
        (r"^\p{Greek}\P{^Lu}\pN$", &["αA1"], &["aA1"]),
        (r"^[\x{D800}-\x{DFFF}]$", &[], &["\u{d7ff}", "\u{e000}"]),
        (r"^[^\x{D800}]$", &["a"], &[]),
        ("^[[:^alpha:]x]$", &["1", "x"], &["y"]),
        ("^[[:]$", &["[", ":"], &["x"]),
        ("^.$", &["ä"], &["\n"]),
    ] {
        let compiled = Pattern::new(pattern).unwrap();
        for text in texts {
            assert!(compiled.regex().is_match(text), "{pattern} is not {text:?}");
        }
        for text in others {
            assert!(!compiled.regex().is_match(text), "{pattern} is {text:?}");
        }
        assert_eq!(compiled.to_string(), pattern);
    }
}

#[test]
fn plain_patterns_stay() {
    for pattern in ["", "^[a-z]$|x", "(?:a+?b*)?$", "a{2,1000}", r"(?i:\.)"] {
        let plain = pattern.replace("[a-z]", r"[\x{61}-\x{7a}]");
        assert_eq!(rewritten(pattern).unwrap(), plain);
    }
}

/// Of an expression that is too large, or that nests too deep, it is said that it is.
#[test]
fn patterns_have_bounds() {
    let deep = format!("{}a{}", "(".repeat(2_000), ")".repeat(2_000));
    assert_eq!(
        Pattern::new(&deep).unwrap_err().to_string(),
        format!("error parsing regexp: expression nests too deeply: `{deep}`")
    );
    let large = r"\pL{1000}".repeat(20);
    assert_eq!(
        Pattern::new(&large).unwrap_err().to_string(),
        format!("error parsing regexp: expression too large: `{large}`")
    );
    assert!(Pattern::new(r"^[\w.]{1,253}$|\pL{50}").is_ok());
}
