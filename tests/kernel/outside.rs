//! The side outside: boots the machine, shows what it says, and judges whether it said everything.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::checks::END;

/// For everything; it takes a fourth of it on two cores.
const LIMIT: Duration = Duration::from_secs(360);

struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have switched itself off.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs all scenarios, or the one of this name.
pub(crate) fn run(only: &str) -> ExitCode {
    let scratch = std::env::temp_dir().join(format!("cleanslate-kernel-{}", std::process::id()));
    let (ok, failed, end) = watch(&scratch, only);
    keep(&scratch);
    let missing = end.is_none_or(|told| told != (ok, failed));
    if missing {
        println!("FAILED the machine did not tell of its end: {end:?}");
    }
    println!("kernel tier: {ok} ok, {failed} failed");
    if missing || failed > 0 || ok == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// How many checks held, how many did not, and how many of each the machine says there were.
fn watch(scratch: &Path, only: &str) -> (u32, u32, Option<(u32, u32)>) {
    let begun = Instant::now();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut boot = Command::new(repository.join("tests/kernel/boot.sh"));
    boot.arg(std::env::current_exe().unwrap()).arg(repository.join("target/release/cleanslate"));
    boot.arg(scratch).arg(only).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut machine = Machine(boot.spawn().unwrap());
    let console = BufReader::new(machine.0.stdout.take().unwrap());
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in console.split(b'\n').map_while(Result::ok) {
            let _ = tell.send(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
    });
    let (mut ok, mut failed, mut end) = (0, 0, None);
    while let Ok(line) = lines.recv_timeout(LIMIT.saturating_sub(begun.elapsed())) {
        if line.starts_with("ok ") {
            ok += 1;
        } else if line.starts_with("FAILED ") {
            failed += 1;
        } else if let Some(told) = line.strip_prefix(END) {
            let mut numbers = told.split_whitespace().filter_map(|word| word.parse().ok());
            end = numbers.next().zip(numbers.next());
            continue;
        } else {
            // The machine's console, the scenarios' names.
            println!("{:5.1} s | {line}", begun.elapsed().as_secs_f32());
            continue;
        }
        println!("{line}");
    }
    if begun.elapsed() >= LIMIT {
        println!("FAILED it did not end within {} s", LIMIT.as_secs());
        failed += 1;
    }
    (ok, failed, end)
}

/// The logs stay in target/kernel, everything else goes.
fn keep(scratch: &Path) {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/kernel");
    let _ = std::fs::remove_dir_all(&logs);
    let _ = std::fs::create_dir_all(&logs);
    for entry in std::fs::read_dir(scratch.join("host")).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|end| end == "log") {
            let _ = std::fs::copy(entry.path(), logs.join(entry.file_name()));
        }
    }
    let _ = std::fs::remove_dir_all(scratch);
}
