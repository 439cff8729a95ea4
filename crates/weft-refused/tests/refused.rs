//! What `#[derive(Record)]`, `#[procedure]` and the types of `weft` refuse, with the words that they find for it: one
//! program per file of `refused/`, beside the compiler's whole answer.

#[test]
fn misuse_is_refused_with_a_helpful_message() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
