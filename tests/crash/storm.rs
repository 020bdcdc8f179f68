//! A storm: a hundred callers who do all that callers do, devices that break, hang and lose their workers, and
//! somebody who watches nothing but the devices.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cleanslate::sim::{Counts, Fault};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::census::Census;
use super::node::{ClaimFile, Node, PATIENCE, Policy, at, claim, has_open, is_locked};
use super::random::Random;

const CALLERS: u64 = 100;
const DEVICES: usize = 16;
/// Of each caller, so that a UID comes back.
const CLAIMS: u64 = 3;
const FAULTS: [Fault; 6] =
    [Fault::HangReset, Fault::DropWrites, Fault::SkipFill, Fault::BarsLost, Fault::DieAtReset, Fault::Dead];

/// What a pod has, and how its device was when it got it.
struct Holding {
    pod: String,
    counts: Counts,
}

/// The devices and the pods that use them; knows nothing of our state.
struct World {
    node: Node,
    pods: Vec<Mutex<Option<Holding>>>,
    /// What the scheduler has given to whom.
    allocated: Mutex<BTreeMap<usize, String>>,
    calls: AtomicU32,
    granted: AtomicU32,
    refused: Mutex<BTreeMap<String, u32>>,
    target: u32,
    /// Every caller is done.
    over: AtomicBool,
}

/// A caller's claim.
#[derive(Default)]
struct Claim {
    devices: Vec<usize>,
    allocations: u32,
    /// A pod runs with it.
    runs: bool,
}

impl World {
    fn goes_on(&self) -> bool {
        self.calls.load(Ordering::Relaxed) < self.target
    }

    /// A pod starts on these devices: nobody else may have one, and its mark is all that is in their memory.
    fn starts(&self, pod: &str, devices: &[usize]) {
        for device in devices {
            let mut place = self.pods[*device].lock().unwrap();
            let other = place.as_ref().map(|holding| holding.pod.clone());
            assert!(other.is_none(), "device {device} was given to {pod}, and {other:?} has it");
            let memory = self.node.twin.memory(at(*device)).unwrap();
            assert!(memory.iter().all(|byte| *byte == 0), "{pod} got device {device} with something in it");
            self.node.leave(*device, mark(pod).as_bytes());
            *place = Some(Holding { pod: pod.to_owned(), counts: self.node.counts(*device) });
        }
    }

    /// It ends; until now nobody has touched its devices.
    fn ends(&self, pod: &str, devices: &[usize]) {
        for device in devices {
            let mut place = self.pods[*device].lock().unwrap();
            self.is_left_alone(*device, &place);
            assert!(place.take().is_some_and(|holding| holding.pod == pod), "{pod} had device {device}");
        }
    }

    fn is_left_alone(&self, device: usize, place: &Option<Holding>) {
        if let Some(Holding { pod, counts }) = place {
            assert_eq!(self.node.counts(device), *counts, "device {device} was worked on under {pod}");
            assert!(self.node.holds(device, mark(pod).as_bytes()), "{pod}'s data on device {device} is gone");
        }
    }

    fn count(&self, error: &str) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if error.is_empty() {
            self.granted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Without names and numbers.
        let words: Vec<_> =
            error.split([' ', ':']).filter(|word| word.chars().all(char::is_alphabetic)).collect();
        *self.refused.lock().unwrap().entry(words[..words.len().min(8)].join(" ")).or_default() += 1;
    }
}

fn mark(pod: &str) -> String {
    format!("this is what {pod} works on")
}

/// One caller: a kubelet's thread.
async fn caller(world: Arc<World>, number: u64, mut random: Random) {
    let mut claims: Vec<Claim> = (0..CLAIMS).map(|_| Claim::default()).collect();
    while world.goes_on() {
        // Who has devices does something with them before asking for more.
        let has = claims.iter().position(|claim| !claim.devices.is_empty());
        let which = has.unwrap_or(usize::try_from(random.below(CLAIMS)).unwrap());
        let (name, claim) = (format!("c{number}-{which}"), &mut claims[which]);
        if claim.runs {
            match random.below(10) {
                // Repeated: the same answer, and nothing happens.
                0..2 => prepare(&world, &name, claim).await,
                // Another allocation of the same UID, whose pod has ended.
                2..4 => {
                    end(&world, &name, claim);
                    allocate(&world, &name, claim, &mut random).await;
                    prepare(&world, &name, claim).await;
                }
                _ => unprepare(&world, &name, claim).await,
            }
        } else {
            allocate(&world, &name, claim, &mut random).await;
            match random.below(10) {
                // The call ends early; the work goes on, and the next call joins it or undoes it.
                0..2 => {
                    let call = world.node.preparing(&name);
                    tokio::time::sleep(Duration::from_millis(random.below(60))).await;
                    call.abort();
                    if random.percent(50) {
                        prepare(&world, &name, claim).await;
                    }
                }
                // The pod is deleted while it is prepared.
                2 => {
                    let call = world.node.preparing(&name);
                    tokio::time::sleep(Duration::from_millis(random.below(60))).await;
                    world.node.unprepared_only(&name).await;
                    world.count(&call.await.unwrap().error);
                }
                _ => prepare(&world, &name, claim).await,
            }
        }
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
        if random.percent(80) {
            unprepare(&world, &name, claim).await;
        }
    }
    for (which, claim) in claims.iter_mut().enumerate() {
        unprepare(&world, &format!("c{number}-{which}"), claim).await;
    }
}

/// The scheduler gives it other devices: such that nobody has; but now and then, and where all are taken, others.
async fn allocate(world: &World, name: &str, claimed: &mut Claim, random: &mut Random) {
    free(world, name);
    let wanted = if random.percent(10) { 2 } else { 1 };
    let (careless, begun) = (random.percent(15), Instant::now());
    claimed.devices = loop {
        let mut first = usize::try_from(random.below(DEVICES as u64)).unwrap();
        if careless {
            // One that a pod is using, if there is any.
            let mut used = (first..first + DEVICES).map(|device| device % DEVICES);
            first = used.find(|device| world.pods[*device].lock().unwrap().is_some()).unwrap_or(first);
        }
        let devices: Vec<_> = (first..first + wanted).map(|device| device % DEVICES).collect();
        if careless || take(world, name, &devices) || begun.elapsed() > Duration::from_secs(5) {
            break devices;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    claimed.allocations += 1;
    let file: ClaimFile = claimed.devices.iter().fold(claim(name), |file, device| file.on(*device));
    let at = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(claimed.allocations.into());
    world.node.give(&file.allocated_at(&at.to_string()));
}

fn take(world: &World, name: &str, devices: &[usize]) -> bool {
    let mut allocated = world.allocated.lock().unwrap();
    let are_free = devices.iter().all(|device| !allocated.contains_key(device));
    if are_free {
        allocated.extend(devices.iter().map(|device| (*device, name.to_owned())));
    }
    are_free
}

fn free(world: &World, name: &str) {
    world.allocated.lock().unwrap().retain(|_, holder| holder != name);
}

async fn prepare(world: &World, name: &str, claim: &mut Claim) {
    let answer = world.node.prepare(name).await;
    world.count(&answer.error);
    if answer.error.is_empty() && !claim.runs {
        let devices: Vec<_> = answer.devices.iter().map(|device| device.device_name.clone()).collect();
        let wanted: Vec<_> = claim.devices.iter().map(|device| super::node::name(*device)).collect();
        assert_eq!(devices, wanted, "{name}");
        world.starts(name, &claim.devices);
        claim.runs = true;
    }
}

fn end(world: &World, name: &str, claim: &mut Claim) {
    if claim.runs {
        world.ends(name, &claim.devices);
        claim.runs = false;
    }
}

async fn unprepare(world: &World, name: &str, claim: &mut Claim) {
    end(world, name, claim);
    world.calls.fetch_add(1, Ordering::Relaxed);
    world.node.unprepared_only(name).await;
    // It is gone with its pod, or was never there.
    let _ = fs::remove_file(world.node.path("claims").join(format!("{name}.json")));
    free(world, name);
    claim.devices.clear();
}

/// Breaks a device for a moment, or kills the worker that is at it.
async fn weather(world: Arc<World>, mut random: Random) -> BTreeMap<String, u32> {
    let mut broken = BTreeMap::<_, u32>::new();
    while world.goes_on() {
        let device = usize::try_from(random.below(DEVICES as u64)).unwrap();
        if random.percent(30) {
            if kill_worker(&world.node, device) {
                *broken.entry("worker killed".to_owned()).or_default() += 1;
            }
        } else {
            let fault = FAULTS[usize::try_from(random.below(FAULTS.len() as u64)).unwrap()];
            world.node.fault(device, Some(fault));
            tokio::time::sleep(Duration::from_millis(20 + random.below(150))).await;
            world.node.fault(device, None);
            *broken.entry(format!("{fault:?}")).or_default() += 1;
        }
        tokio::time::sleep(Duration::from_millis(50 + random.below(200))).await;
    }
    broken
}

fn kill_worker(node: &Node, device: usize) -> bool {
    let lock = node.path("run").join(format!("{}.lock", at(device)));
    let text = fs::read_to_string(&lock).unwrap_or_default();
    let pid = text.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
    pid.filter(|pid| has_open(*pid, &lock))
        .is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
}

/// Looks at every device that a pod has, again and again: how often.
async fn watch(world: Arc<World>) -> u64 {
    let mut looks = 0;
    while !world.over.load(Ordering::Relaxed) {
        for (device, place) in world.pods.iter().enumerate() {
            let place = place.lock().unwrap();
            world.is_left_alone(device, &place);
            looks += u64::from(place.is_some());
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    looks
}

pub(crate) async fn rages(target: u32, seed: u64) {
    println!("storm: {target} calls, {CALLERS} callers, {DEVICES} devices, CLEANSLATE_STORM_SEED={seed}");
    let policy = Policy::default()
        .release("patience", "1ms")
        .release("retry", "50ms")
        .release("attempts", "1000")
        .deadline("reset", "500ms");
    let node = Node::with_fields(&[STORMY; DEVICES], policy).await;
    let before = Census::of(&node);
    let pods = (0..DEVICES).map(|_| Mutex::new(None)).collect();
    let (calls, granted) = (AtomicU32::new(0), AtomicU32::new(0));
    let world = Arc::new(World {
        node,
        pods,
        allocated: Mutex::default(),
        calls,
        granted,
        refused: Mutex::default(),
        target,
        over: AtomicBool::new(false),
    });
    let begun = Instant::now();
    let random = Random(seed);
    let weather = tokio::spawn(weather(Arc::clone(&world), random.branch(CALLERS)));
    let watcher = tokio::spawn(watch(Arc::clone(&world)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|number| tokio::spawn(caller(Arc::clone(&world), number, random.branch(number))))
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    world.over.store(true, Ordering::Relaxed);
    let (broken, looks) = (weather.await.unwrap(), watcher.await.unwrap());
    let world = Arc::into_inner(world).unwrap();
    let (calls, granted) = (world.calls.into_inner(), world.granted.into_inner());
    println!(
        "{calls} calls in {:.1} s, {granted} granted, {looks} looks; {broken:?}",
        begun.elapsed().as_secs_f64()
    );
    for (why, times) in world.refused.into_inner().unwrap() {
        println!("refused {times} times: {why}");
    }
    assert!(granted >= target / 8 && looks > 0, "a storm that grants next to nothing shows next to nothing");
    nothing_is_left(world.node, &before).await;
}

const STORMY: &str = "reset_ms=1,memory=8192";

/// Every device comes back, and nothing else is left of it all.
async fn nothing_is_left(mut node: Node, before: &Census) {
    node.proved().await;
    node.until("nothing is owed", |status| status.ledger.unwritten == 0 && status.ledger.claims.is_empty())
        .await;
    let is_clean = || {
        let empty = ["claims", "releasing", "quarantine", "damaged"];
        empty.iter().all(|folder| node.records(folder).is_empty())
            && node.records("devices").len() == DEVICES
            && fs::read_dir(node.path("cdi")).unwrap().count() == 0
            && (0..DEVICES).all(|device| !is_locked(&node.path("run").join(format!("{}.lock", at(device)))))
    };
    node.eventually("no record, file or lock is left", is_clean).await;
    let begun = Instant::now();
    let after = loop {
        let after = Census::of(&node);
        if after.is_like(before) {
            break after;
        }
        assert!(begun.elapsed() < PATIENCE, "before {before}, after {after}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    println!("before: {before}\nafter:  {after}");
    let names: Vec<_> =
        fs::read_dir(node.path("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let strange = names.iter().filter(|name| !name.to_string_lossy().ends_with(".lock")).count();
    assert_eq!(strange, 1, "the control socket, and no journal: {names:?}");
    assert!(!node.log().contains("panicked"));
    node.stop().await;
}
