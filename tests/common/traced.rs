//! Whether faults can be injected here.

use std::process::Command;

/// Whether processes can be traced here. Where every test is required, it is an error that they cannot.
pub(crate) fn works() -> bool {
    let trace = ["-qq", "-o", "/dev/null", "-e", "inject=openat:signal=SIGKILL:when=1", "cat", "/dev/null"];
    let works = Command::new("strace").args(trace).output().is_ok_and(|output| !output.status.success());
    assert!(
        works || std::env::var_os("TESTS_REQUIRE").is_none(),
        "strace is missing, or may not trace here; with TESTS_REQUIRE a test may not be skipped"
    );
    if !works {
        println!("SKIPPED: strace is missing, or may not trace here; nothing was injected");
    }
    works
}
