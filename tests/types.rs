//! A grant without a proof of its own lease does not compile. Each way around it, a function in `types/*_fails.rs`,
//! differs in that way only from one in `types/ok.rs`, which compiles: it is the way that is refused.
//!
//! After a change of a word or a signature that is shown: `TRYBUILD=overwrite cargo test --test types`.

#[path = "types/ok.rs"]
mod ok;

/// That it is a part of this test is what shows that it compiles; `trybuild` would build everything anew for it.
#[test]
fn types_the_right_way_compiles() {
    ok::main();
}

#[test]
fn types_no_grant_without_a_proof_of_its_own_lease() {
    trybuild::TestCases::new().compile_fail("tests/types/*_fails.rs");
}
