//! What a process has: other processes, descriptors, threads, memory.

use std::fmt;
use std::fs;

use super::node::Node;

pub(crate) struct Census {
    children: usize,
    descriptors: usize,
    threads: usize,
    resident_kib: usize,
}

impl Census {
    pub(crate) fn of(node: &Node) -> Self {
        let pid = node.daemon().pid();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        Self {
            children: children(&pid.to_string()).len(),
            descriptors,
            threads: number("Threads:"),
            resident_kib: number("VmRSS:"),
        }
    }

    /// Nothing has stayed. Threads for files come and go by themselves, and memory that was used once is kept for the
    /// next time: those are told only.
    pub(crate) fn is_like(&self, before: &Self) -> bool {
        self.children == 0 && self.descriptors <= before.descriptors + 2
    }
}

impl fmt::Display for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { children, descriptors, threads, resident_kib } = self;
        write!(
            f,
            "{children} children, {descriptors} descriptors, {threads} threads, {resident_kib} KiB resident"
        )
    }
}

/// The children of a process, zombies too.
pub(crate) fn children(parent: &str) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name of the program may have spaces and parentheses.
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(parent)
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}
