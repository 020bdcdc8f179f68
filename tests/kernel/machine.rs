//! The machine seen from outside: QEMU's monitor, its log, the memory behind devices.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::function::Function;

/// What a tenant leaves.
const SECRET: &[u8] = b"the tenant's secret";
/// How much memory each device has whose memory is a file outside.
pub(crate) const MEMORY: u64 = 16 << 20;

pub(crate) struct Machine {
    monitor: Mutex<(File, BufReader<File>, u64)>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let line = || File::options().read(true).write(true).open("/dev/ttyS1").unwrap();
        let machine = Self { monitor: Mutex::new((line(), BufReader::new(line()), 0)) };
        machine.ask("qmp_capabilities", &json!({}));
        machine
    }

    fn ask(&self, command: &str, arguments: &Value) -> Value {
        let (monitor, answers, asked) = &mut *self.monitor.lock().unwrap();
        *asked += 1;
        // On a line of its own, whatever the line's echo has said to the monitor before.
        writeln!(monitor, "\n{}", json!({"execute": command, "arguments": arguments, "id": asked})).unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(answers.read_line(&mut line).unwrap(), 0, "the monitor is gone");
            // Greetings and events have no id.
            let answer: Value = serde_json::from_str(&line).unwrap_or_default();
            if answer["id"] == *asked {
                return answer
                    .get("return")
                    .unwrap_or_else(|| panic!("{command} {arguments}: {answer}"))
                    .clone();
            }
        }
    }

    /// A command of the monitor for people; what it says.
    pub(crate) fn monitor(&self, command: &str) -> String {
        let answer = self.ask("human-monitor-command", &json!({"command-line": command}));
        answer.as_str().unwrap_or_default().trim_end().to_owned()
    }

    /// Lets QEMU write a piece of the machine's memory into a file.
    pub(crate) fn dump(&self, from: u64, bytes: u64) -> Memory {
        let file = "host/dump.mem";
        self.ask("pmemsave", &json!({"val": from, "size": bytes, "filename": file}));
        Memory("/host/dump.mem".into())
    }
}

/// The memory behind a device, as a file outside.
pub(crate) struct Memory(PathBuf);

impl Memory {
    pub(crate) fn of(name: &str) -> Self {
        Self(Path::new("/host").join(name).with_extension("mem"))
    }

    /// A tenant's data: at the beginning, at the end and all over.
    pub(crate) fn leave_secret(&self) {
        let file = File::options().write(true).open(&self.0).unwrap();
        let last = MEMORY - SECRET.len() as u64;
        for at in (0..64).map(|part| part * (MEMORY / 64 + 4096)).filter(|at| *at < last).chain([last]) {
            file.write_all_at(SECRET, at).unwrap();
        }
    }

    pub(crate) fn has_secret(&self) -> bool {
        fs::read(&self.0).unwrap().windows(SECRET.len()).any(|window| window == SECRET)
    }

    /// How many of its bytes are not zero.
    pub(crate) fn left(&self) -> usize {
        let bytes = fs::read(&self.0).unwrap();
        let (words, rest) = bytes.as_chunks::<8>();
        let other = words.iter().filter(|word| **word != [0; 8]).count();
        8 * other + rest.iter().filter(|byte| **byte != 0).count()
    }
}

/// Writes to config spaces, as QEMU has seen them.
pub(crate) struct Log(usize);

impl Log {
    /// From now on.
    pub(crate) fn now() -> Self {
        Self(fs::read("/host/qemu.log").unwrap().len())
    }

    /// What was written to a function since, each with its place.
    pub(crate) fn writes(&self, function: Function) -> Vec<(u64, u64)> {
        let log = fs::read("/host/qemu.log").unwrap();
        let text = String::from_utf8_lossy(&log[self.0..]).into_owned();
        let hex = |word: &str| u64::from_str_radix(word.trim_start_matches('@').strip_prefix("0x")?, 16).ok();
        // pci_cfg_write nvme 03:00.0 @0x4 <- 0x400
        let written = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["pci_cfg_write", _, place, at, "<-", value]
                if Some(place) == function.0.strip_prefix("0000:") =>
            {
                Some((hex(at)?, hex(value)?))
            }
            _ => None,
        };
        text.lines().filter_map(written).collect()
    }

    /// How often a function level reset was initiated since.
    pub(crate) fn resets(&self, function: Function) -> usize {
        let control = function.express() + 8;
        self.writes(function).iter().filter(|(at, value)| *at == control && value & 1 << 15 != 0).count()
    }
}

/// Writes a word of physical memory; the kernel lets root do that where no driver is.
pub(crate) fn devmem(address: u64, width: u32, value: u64) {
    let arguments = [format!("{address:#x}"), width.to_string(), format!("{value:#x}")];
    let output = Command::new("devmem").args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Loads a module of the kernel, and what it depends on.
pub(crate) fn load(module: &str) {
    for file in fs::read_to_string(Path::new("/modules").join(module)).unwrap().lines() {
        let output = Command::new("insmod").arg(file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
