//! What `#[derive(Record)]` and `#[procedure]` refuse, with the words that it finds for it: one program per file of
//! `refused/`, beside the compiler's whole answer.

#[test]
fn a_misuse_is_refused_with_helpful_words() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
