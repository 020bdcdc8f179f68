//! Attributes that are missing, empty, huge or unreadable, and devices that vanish while they are read: the damaged
//! device is left out or refused with what is wrong named, its neighbour is not disturbed, and unknown is never healthy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cleanslate::proof::verdict::{Stage, of_end, of_probe};
use cleanslate::types::{Fact, Reason, StepName};
use cleanslate::worker::Outcome;
use nix::sys::stat::Mode;

use crate::machine::{CARD, Machine, NEIGHBOUR, Taken, link, put, remove};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    Missing,
    Dangling,
    Empty,
    /// What it held, and 1 MiB of blanks.
    Huge,
    NotUtf8,
    /// Something else, of the right length.
    Junk,
    Folder,
    /// The kernel answers EIO.
    Broken,
    Endless,
}

const ALL: [Damage; 9] = [
    Damage::Missing,
    Damage::Dangling,
    Damage::Empty,
    Damage::Huge,
    Damage::NotUtf8,
    Damage::Junk,
    Damage::Folder,
    Damage::Broken,
    Damage::Endless,
];

impl Damage {
    fn is_missing(self) -> bool {
        matches!(self, Self::Missing | Self::Dangling)
    }

    fn inflict(self, path: &Path) {
        let mut held = fs::read(path).unwrap_or_default();
        match self {
            Self::Missing => remove(path),
            Self::Dangling => link(path, "nowhere"),
            Self::Empty => put(path, b""),
            Self::Huge => {
                held.resize(held.len() + (1 << 20), b' ');
                put(path, &held);
            }
            Self::NotUtf8 => put(path, b"\xff\xfe\n"),
            Self::Junk => put(path, &vec![b'z'; held.len().max(1)]),
            Self::Folder => {
                remove(path);
                fs::create_dir(path).unwrap();
            }
            // Reading one's own memory at address 0.
            Self::Broken => link(path, "/proc/self/mem"),
            Self::Endless => link(path, "/dev/zero"),
        }
    }
}

/// What becomes of the card.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Refused, nothing known against it; the words name the attribute.
    Refused,
    /// In quarantine.
    Sick,
    /// Identified, and it cannot be cleaned as the policy wants.
    Unsupported,
    /// Identified, and no proof can come of it: the attribute's fact is unreadable.
    Unproved,
    /// Identified; it was only a hint.
    Well,
}

fn fate(attribute: &str, damage: Damage) -> Fate {
    match attribute {
        "vendor" | "device" | "class" => Fate::Refused,
        // Only a display has it.
        "boot_vga" if damage.is_missing() => Fate::Well,
        "boot_vga" => Fate::Refused,
        // Config space has no end: what lies behind it is not read.
        "config" if damage == Damage::Huge => Fate::Well,
        "config" | "resource" => Fate::Sick,
        "reset_method" if damage.is_missing() => Fate::Unsupported,
        "reset_method" if matches!(damage, Damage::Empty | Damage::Junk) => Fate::Unsupported,
        "sriov_numvfs" if damage.is_missing() => Fate::Well,
        "reset_method" | "sriov_numvfs" => Fate::Sick,
        "numa_node" | "current_link_speed" | "power_state" => Fate::Well,
        "current_link_width" | "max_link_width" => Fate::Unproved,
        "aer_dev_correctable" | "aer_dev_nonfatal" | "aer_dev_fatal" => Fate::Unproved,
        other => panic!("{other}"),
    }
}

const ATTRIBUTES: [&str; 16] = [
    "vendor",
    "device",
    "class",
    "boot_vga",
    "config",
    "resource",
    "reset_method",
    "sriov_numvfs",
    "numa_node",
    "power_state",
    "current_link_speed",
    "current_link_width",
    "max_link_width",
    "aer_dev_correctable",
    "aer_dev_nonfatal",
    "aer_dev_fatal",
];

#[tokio::test]
async fn damaged_attributes_cost_their_own_device_and_are_named() {
    let machine = Machine::captured("01-boot-unbound");
    let mut rows = 0;
    for attribute in ATTRIBUTES {
        let path = machine.folder(CARD).join(attribute);
        let held = fs::read(&path).ok();
        for damage in ALL {
            if let Some(held) = &held {
                put(&path, held);
            }
            damage.inflict(&path);
            let (fate, what) = (fate(attribute, damage), format!("{attribute} {damage:?}"));
            let taken = machine.taken().await;
            let told = taken.refused(CARD).unwrap_or_default();
            println!("{what}: {fate:?} {told}");
            check(&machine, &taken, fate, attribute, &what).await;
            assert!(told.len() < 400, "{what}: {} bytes of words", told.len());
            let neighbour = taken.known(NEIGHBOUR).unwrap_or_else(|| panic!("{what}: the neighbour is lost"));
            assert_eq!(
                (&neighbour.unsupported, taken.refused(NEIGHBOUR)),
                (&no_reset(), no_reset()),
                "{what}"
            );
            assert_eq!(taken.quarantine(NEIGHBOUR), None, "{what}");
            remove(&path);
            rows += 1;
        }
        if let Some(held) = &held {
            put(&path, held);
        }
    }
    println!("{rows} rows");
    assert_eq!(rows, ATTRIBUTES.len() * ALL.len());
    let taken = machine.taken().await;
    assert_eq!((taken.refused(CARD), taken.quarantine(CARD)), (None, None), "whole again");
}

/// The captured display has no function level reset.
fn no_reset() -> Option<String> {
    Some("unsupported_mode: the kernel has no reset method \"flr\" for it, only [\"bus\"]".to_owned())
}

async fn check(machine: &Machine, taken: &Taken, fate: Fate, attribute: &str, what: &str) {
    let (known, told) = (taken.known(CARD), taken.refused(CARD));
    let quarantine = taken.quarantine(CARD);
    match fate {
        Fate::Refused => {
            let told = told.unwrap_or_else(|| panic!("{what}: it is left out without a word"));
            assert!(known.is_none() && quarantine.is_none(), "{what}: {quarantine:?}");
            assert!(told.starts_with(&format!("its ids cannot be read: {attribute}")), "{what}: {told}");
        }
        Fate::Sick => {
            let told = told.unwrap_or_else(|| panic!("{what}: it is left out without a word"));
            assert!(known.is_none(), "{what}");
            assert_eq!(quarantine, Some(Reason::ProbeFailed), "{what}");
            assert!(told.starts_with(&format!("inspect: {attribute}")), "{what}: {told}");
        }
        Fate::Unsupported => {
            assert!(known.is_some() && quarantine.is_none(), "{what}");
            assert!(told.is_some_and(|told| told.contains("has no reset method \"flr\"")), "{what}");
        }
        Fate::Unproved => {
            assert_eq!((known.is_some(), told, quarantine), (true, None, None), "{what}");
            let Outcome::Done(probe) = machine.probe(CARD).await else { panic!("{what}") };
            let fact = if attribute.contains("link") { &probe.link } else { &probe.counters };
            let Fact::Unreadable(why) = fact else { panic!("{what}: {fact:?}") };
            assert!(why.starts_with(attribute), "{what}: {why}");
            let verdict = of_probe(Stage::AfterReset, &probe, None);
            assert_eq!(verdict.device.map(|(reason, _)| reason), Some(Reason::ProbeFailed), "{what}");
        }
        Fate::Well => {
            assert_eq!((known.is_some(), told, quarantine), (true, None, None), "{what}");
            let Outcome::Done(probe) = machine.probe(CARD).await else { panic!("{what}") };
            assert!(of_probe(Stage::AfterReset, &probe, None).is_good(), "{what}: {probe:?}");
        }
    }
}

/// What must be a link and is none, or leads nowhere.
#[tokio::test]
async fn damaged_links_cost_their_own_device_and_are_named() {
    let rows: [(&str, Option<&str>, &str); 7] = [
        ("driver", None, "inspect: driver: "),
        ("physfn", None, "inspect: physfn: "),
        ("physfn", Some("../0000:77:00.0"), "inspect: physfn: "),
        ("physfn", Some("../gpu"), "inspect: physfn holds \"gpu\""),
        // A function without a link back.
        ("physfn", Some("../0000:01:00.0"), "inspect: physfn holds \"0000:01:00.0\""),
        // Only hints.
        ("iommu_group", None, ""),
        ("iommu_group", Some("../../nowhere/x"), ""),
    ];
    let machine = Machine::captured("01-boot-unbound");
    for (attribute, target, words) in rows {
        let path = machine.folder(CARD).join(attribute);
        let held = fs::read_link(&path).ok();
        match target {
            Some(target) => link(&path, target),
            None => put(&path, b"no link\n"),
        }
        let taken = machine.taken().await;
        let told = taken.refused(CARD).unwrap_or_default();
        println!("{attribute} {target:?}: {told}");
        assert!(
            told.starts_with(words) && told.is_empty() == words.is_empty(),
            "{attribute} {target:?}: {told}"
        );
        assert_eq!(taken.quarantine(CARD), (!words.is_empty()).then_some(Reason::ProbeFailed));
        assert!(taken.known(NEIGHBOUR).is_some());
        remove(&path);
        if let Some(held) = held {
            link(&path, held);
        }
    }
}

/// What an attribute that we may not read costs: ids are not known, and of the rest our deployment is at fault, no device.
#[tokio::test]
#[ignore = "root may read everything; started by the test below"]
async fn inner_forbidden() {
    for attribute in ["vendor", "class", "config", "resource", "reset_method", "aer_dev_fatal"] {
        let machine = Machine::captured("01-boot-unbound");
        let path = machine.folder(CARD).join(attribute);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        let taken = machine.taken().await;
        let told = taken.refused(CARD).unwrap_or_default();
        println!("{attribute}: {told}");
        let words = format!("{attribute}: Permission denied (os error 13)");
        assert_eq!(taken.quarantine(CARD), None, "{attribute}");
        assert!(taken.known(NEIGHBOUR).is_some());
        match attribute {
            "vendor" | "class" => assert_eq!(told, format!("its ids cannot be read: {words}")),
            "aer_dev_fatal" => {
                let Outcome::Done(probe) = machine.probe(CARD).await else { panic!("{attribute}") };
                assert_eq!(probe.counters, Fact::Unreadable(words));
            }
            _ => {
                assert!(told.starts_with(&format!("permission: inspect: {words}")), "{attribute}: {told}");
                assert!(told.contains("run as root"), "{attribute}: {told}");
            }
        }
    }
}

#[test]
fn an_attribute_that_we_may_not_read_blames_no_device() {
    if !nix::unistd::geteuid().is_root() {
        println!("only root can become somebody else here");
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let output = std::process::Command::new(exe)
        .args(["damage::inner_forbidden", "--exact", "--ignored", "--nocapture"])
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output();
    let Ok(output) = output else {
        println!("nobody else may read this checkout: {output:?}");
        return;
    };
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
}

#[tokio::test]
async fn a_read_that_blocks_costs_its_own_device() {
    let machine = Machine::captured("01-boot-unbound").hasty("300ms");
    let config = machine.folder(CARD).join("config");
    remove(&config);
    nix::unistd::mkfifo(&config, Mode::S_IRUSR).unwrap();
    let taken = machine.taken().await;
    assert_eq!(taken.quarantine(CARD), Some(Reason::ProbeTimeout));
    assert!(taken.refused(CARD).unwrap().contains("inspect did not return within its deadline"));
    assert!(taken.known(NEIGHBOUR).is_some());
}

#[tokio::test]
async fn a_device_that_vanishes_is_left_out_and_named() {
    let machine = Machine::captured("01-boot-unbound");
    let taken = machine.taken().await;
    let known = taken.known(CARD).unwrap();

    // Its folder goes between the list and the read: a link to nothing.
    fs::remove_dir_all(machine.folder(CARD)).unwrap();
    taken.inventory.rescan().await;
    assert!(taken.known(CARD).is_none());
    assert!(taken.refused(CARD).unwrap().starts_with("its ids cannot be read: vendor: No such file"));
    let outcome = machine.probe(CARD).await;
    let words = of_end(StepName::Probe, &outcome).claim.unwrap();
    assert_eq!(words, "probe: 0000:02:00.0 is no longer in sysfs");

    // The link goes too: it is not there at all, and nothing is known against it.
    fs::remove_file(machine.roots.pci_device(CARD.parse().unwrap())).unwrap();
    taken.inventory.rescan().await;
    assert_eq!(
        (taken.known(CARD).is_none(), taken.refused(CARD), taken.quarantine(CARD)),
        (true, None, None)
    );
    let whole = machine.taken().await;
    let (before, now) = (taken.known(NEIGHBOUR).unwrap(), whole.known(NEIGHBOUR).unwrap());
    assert_eq!(before.inspection, now.inspection);
    assert_eq!(known.subject.identity.as_str(), "pci-0000-02-00-0");
}

#[tokio::test]
async fn a_machine_whose_functions_cannot_be_listed_is_told() {
    let machine = Machine::captured("01-boot-unbound");
    let list = machine.roots.pci_devices();
    let taken = machine.taken().await;
    fs::rename(&list, list.with_file_name("aside")).unwrap();
    let path = list.display();
    // An inventory that had looked keeps what it knew: a failed look says nothing about it.
    taken.inventory.rescan().await;
    assert!(taken.known(CARD).is_some());
    let blind = machine.taken().await;
    let words = format!("{path}: No such file or directory (os error 2)");
    assert_eq!(blind.inventory.refused(), [("all devices".to_owned(), words)]);
    put(&list, b"");
    let words = format!("{path}: Not a directory (os error 20)");
    assert_eq!(machine.taken().await.inventory.refused(), [("all devices".to_owned(), words)]);
    // Names that are no addresses are passed over.
    remove(&list);
    fs::create_dir(&list).unwrap();
    put(&list.join("0000:3b:00"), b"");
    put(&list.join("README"), b"");
    let taken = machine.taken().await;
    assert!(taken.inventory.refused().is_empty() && taken.inventory.nothing_ours().is_some());
}

/// Taken away and put back again and again while it is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_comes_and_goes_disturbs_nobody() {
    let machine = Machine::captured("01-boot-unbound");
    let (folder, aside) = (machine.folder(CARD), machine.roots.sys.join("aside"));
    let taken = machine.taken().await;
    let over = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&folder, &aside).unwrap();
                std::thread::yield_now();
                fs::rename(&aside, &folder).unwrap();
                std::thread::yield_now();
            }
        });
        let looks = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let mut seen = [0, 0];
                for _ in 0..20 {
                    taken.inventory.rescan().await;
                    assert!(taken.known(NEIGHBOUR).is_some());
                    assert_eq!(taken.quarantine(NEIGHBOUR), None);
                    seen[usize::from(taken.known(CARD).is_some())] += 1;
                }
                seen
            })
        });
        over.store(true, Ordering::Relaxed);
        looks
    });
    println!("20 looks: away {}, there {}", looks[0], looks[1]);
    taken.inventory.rescan().await;
    let card = taken.known(CARD);
    // It may have been caught half read, which is a quarantine that a proof ends.
    assert!(card.is_some() && matches!(taken.quarantine(CARD), None | Some(Reason::ProbeFailed)));
}
