//! How fast a mapped memory is filled and checked, beside memset and memcmp on the same memory: `cargo bench --bench bar`.
//!
//! The memory is a file in `/dev/shm` (MiB as argument, 256 without), so this says what our loops cost, not what a
//! device's bus does. Each pass is measured beside its match, turn by turn, so that a busy machine slows both; what
//! is shown is the median of the turns' ratios, and the best speeds.
#![allow(unsafe_code, reason = "memset and memcmp are called as C would")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on fails")]

use std::fs::{self, File};
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use cleanslate::pci::bar::{Bar, MappedMemory};
use cleanslate::pci::sysfs::Function;
use cleanslate::steps::scrub::Pass;
use cleanslate::types::Roots;
use comfy_table::{Table, presets};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

const TURNS: usize = 15;
const NONCE: u64 = 0x0123_4567_89ab_cdef;

fn main() {
    // `cargo bench` adds `--bench`.
    let size = std::env::args().nth(1).and_then(|mib| mib.parse().ok()).unwrap_or(256_usize) << 20;
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let function = lay_out(root.path(), size);
    let bar = Bar { index: 0, start: 1 << 40, size: size as u64, prefetchable: true, wide: true };
    let mut memory = MappedMemory::open(&function, bar).unwrap();
    let (same, other) = (map(&function.path("resource0"), size), map(&root.path().join("other"), size));
    let mut done = |_: u64| Ok(());

    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["PASS", "GB/s", "BESIDE", "GB/s", "RATIO", "TARGET"]);
    for (name, pass) in [("pattern", Pass::pattern(NONCE)), ("zeros", Pass::zeros(NONCE))] {
        let ours = || assert_eq!(pass.fill(&mut memory, &mut done).unwrap(), size as u64);
        // SAFETY: the mapping has that many bytes, and nobody else looks at them now.
        let theirs = || unsafe { black_box(libc::memset(black_box(same), 7, size)).addr() };
        row(&mut table, size, &format!("fill, {name}"), ours, "memset", || {
            theirs();
        });
        pass.fill(&mut memory, &mut done).unwrap();
        // SAFETY: as above, and the other mapping is as long.
        unsafe { std::ptr::copy_nonoverlapping(same.cast::<u8>(), other.cast(), size) };
        let ours = || {
            let checked = pass.check(&mut memory, &mut done).unwrap();
            assert_eq!((checked.errors, checked.words_visited), (0, size as u64 / 8));
        };
        // SAFETY: as above.
        let theirs = || assert_eq!(unsafe { libc::memcmp(black_box(same), black_box(other), size) }, 0);
        row(&mut table, size, &format!("check, {name}"), ours, "memcmp", theirs);
    }
    println!("{} MiB, {TURNS} turns, {}\n{table}", size >> 20, instructions());
}

fn row(
    table: &mut Table,
    size: usize,
    name: &str,
    mut ours: impl FnMut(),
    their: &str,
    mut theirs: impl FnMut(),
) {
    let mut turns: Vec<(f64, f64)> = (0..TURNS).map(|_| (seconds(&mut ours), seconds(&mut theirs))).collect();
    let best = |pick: fn(&(f64, f64)) -> f64| {
        let best = turns.iter().map(pick).fold(f64::MAX, f64::min);
        format!("{:.1}", size as f64 / best / 1e9)
    };
    let speeds = (best(|turn| turn.0), best(|turn| turn.1));
    turns.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let (ours, theirs) = turns[TURNS / 2];
    table.add_row([name, &speeds.0, their, &speeds.1, &format!("{:.2}", theirs / ours), "0.90"]);
}

fn seconds(run: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn lay_out(root: &Path, size: usize) -> Function {
    let function = Function::at(&Roots::below(root), "0000:04:00.0".parse().unwrap());
    fs::create_dir_all(function.folder()).unwrap();
    File::create(function.path("enable")).unwrap();
    for path in [function.path("resource0"), root.join("other")] {
        File::create(path).unwrap().set_len(size as u64).unwrap();
    }
    function
}

/// Maps a file and has all its pages brought.
fn map(path: &Path, size: usize) -> *mut libc::c_void {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
    // SAFETY: the kernel chooses a place where nothing is; the file has that many bytes and keeps them.
    unsafe { mmap(None, NonZeroUsize::new(size).unwrap(), access, flags, file, 0) }.unwrap().as_ptr()
}

fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return "AVX2";
    }
    "no AVX2"
}
