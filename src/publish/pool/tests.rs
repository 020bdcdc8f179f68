use k8s_openapi::api::resource::v1::{DeviceAttribute, DeviceTaint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn pool() -> Pool {
    Pool { driver: "cleanslate.dev".to_owned(), node: "node-a".to_owned(), owner: "uid".to_owned() }
}

fn devices(count: usize) -> Vec<Device> {
    (0..count).map(|n| Device { name: format!("pci-{n:03}"), ..Device::default() }).collect()
}

fn tainted(mut devices: Vec<Device>, which: usize, value: &str) -> Vec<Device> {
    devices[which].taints = Some(vec![DeviceTaint {
        key: "cleanslate.dev/quarantined".to_owned(),
        value: Some(value.to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    }]);
    devices
}

/// A server that stores what it is sent.
#[derive(Default)]
struct Server {
    stored: BTreeMap<String, ResourceSlice>,
    version: u64,
}

impl Server {
    fn with(devices: &[Device]) -> Self {
        let mut server = Self::default();
        server.carry_out(&pool().plan(devices, &server.stored, 0));
        server
    }

    fn carry_out(&mut self, changes: &[Change]) {
        for change in changes {
            self.version += 1;
            match change {
                Change::Delete(slice) => drop(self.stored.remove(name(slice))),
                Change::Create(slice) | Change::Update(slice) => {
                    let mut slice = slice.clone();
                    slice.metadata.resource_version = Some(self.version.to_string());
                    self.stored.insert(name(&slice).to_owned(), slice);
                }
            }
        }
    }

    /// Carries out what a plan says; what that was, and the generations then.
    fn reach(&mut self, devices: &[Device]) -> (String, Vec<i64>) {
        let changes = pool().plan(devices, &self.stored, 0);
        self.carry_out(&changes);
        assert_eq!(pool().plan(devices, &self.stored, 0), [], "one plan is enough");
        let letter = |change: &Change| match change {
            Change::Create(_) => 'c',
            Change::Update(_) => 'u',
            Change::Delete(_) => 'd',
        };
        let generations = self.stored.values().map(|slice| slice.spec.pool.generation).collect();
        (changes.iter().map(letter).collect(), generations)
    }
}

fn did(what: &str, generations: &[i64]) -> (String, Vec<i64>) {
    (what.to_owned(), generations.to_vec())
}

#[test]
fn sizes_and_the_generations_of_changes() {
    let mut server = Server::default();
    assert_eq!(server.reach(&[]), did("c", &[1]), "an empty pool is one empty slice");
    assert_eq!(server.reach(&devices(64)), did("u", &[1]), "one change is seen as a whole");
    assert_eq!(server.reach(&tainted(devices(64), 3, "x")), did("u", &[1]));
    assert_eq!(server.reach(&devices(65)), did("uc", &[2, 2]), "two are not");
    assert_eq!(server.reach(&devices(130)), did("uuc", &[3, 3, 3]));
    assert_eq!(server.reach(&tainted(devices(130), 70, "x")), did("u", &[3, 3, 3]));
    let two = tainted(tainted(devices(130), 1, "x"), 129, "x");
    assert_eq!(server.reach(&two), did("uuu", &[4, 4, 4]));
    assert_eq!(server.reach(&[]), did("udd", &[5]));
    assert_eq!(server.stored["node-a-cleanslate.dev-00"].spec.devices, None);
}

#[test]
fn what_is_lost_comes_back_under_the_same_generation() {
    let mut server = Server::with(&devices(130));
    server.stored.remove("node-a-cleanslate.dev-01");
    assert_eq!(server.reach(&devices(130)), did("c", &[1, 1, 1]));
    server.stored.retain(|name, _| name.ends_with("02"));
    assert_eq!(server.reach(&devices(130)), did("cc", &[1, 1, 1]));
    server.stored.remove("node-a-cleanslate.dev-01");
    assert_eq!(server.reach(&tainted(devices(130), 0, "x")), did("ucu", &[2, 2, 2]), "that is a change too");
    server.stored.clear();
    let changes = pool().plan(&devices(130), &server.stored, 7);
    let generation = |change: &Change| change.written().map(|slice| slice.spec.pool.generation);
    assert!(changes.iter().all(|change| generation(change) == Some(7)), "what consumers may have seen");
}

/// An error in the middle: what consumers do not see yet is completed, not begun anew.
#[test]
fn half_a_plan_is_finished() {
    let mut server = Server::with(&devices(130));
    let two = tainted(tainted(devices(130), 1, "x"), 129, "x");
    let changes = pool().plan(&two, &server.stored, 0);
    server.carry_out(&changes[..1]);
    assert_eq!(server.reach(&two), did("uu", &[2, 2, 2]));
}

#[test]
fn foreign_content_is_put_right_and_strays_go() {
    let mut server = Server::with(&devices(2));
    let ours = "node-a-cleanslate.dev-00";
    fn each(slice: &mut ResourceSlice, change: impl Fn(&mut Device)) {
        slice.spec.devices.iter_mut().flatten().for_each(change);
    }
    let lie = DeviceAttribute { string: Some("0000:00:00.0".to_owned()), ..DeviceAttribute::default() };
    let lies = BTreeMap::from([("resource.kubernetes.io/pciBusID".to_owned(), lie)]);
    let spoil: [&dyn Fn(&mut ResourceSlice); 8] = [
        &|slice| slice.spec.skip_node_operations = Some(vec!["*".to_owned()]),
        &|slice| slice.spec.all_nodes = Some(true),
        &|slice| slice.spec.pool.resource_slice_count = 2,
        &|slice| each(slice, |device| device.allow_multiple_allocations = Some(true)),
        &|slice| each(slice, |device| device.binding_conditions = Some(Vec::new())),
        &|slice| each(slice, |device| device.attributes = Some(lies.clone())),
        &|slice| slice.spec.devices = None,
        &|slice| slice.metadata.owner_references = None,
    ];
    for spoil in spoil {
        spoil(server.stored.get_mut(ours).unwrap());
        assert_eq!(server.reach(&devices(2)), did("u", &[1]));
    }
    let mut stray = server.stored[ours].clone();
    stray.metadata.name = Some("node1-cleanslate".to_owned());
    server.stored.insert("node1-cleanslate".to_owned(), stray);
    assert_eq!(server.reach(&devices(2)), did("d", &[1]));
}

#[test]
fn an_update_keeps_what_others_noted_and_the_time_of_a_taint_that_stays() {
    let mut server = Server::with(&tainted(devices(2), 0, "x"));
    let time = Time("2026-12-01T00:00:00Z".parse().unwrap());
    let slice = server.stored.values_mut().next().unwrap();
    slice.metadata.labels = Some(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    let devices_of = |slice: &mut ResourceSlice| slice.spec.devices.take().unwrap();
    let mut with_time = devices_of(slice);
    with_time[0].taints.as_mut().unwrap()[0].time_added = Some(time.clone());
    slice.spec.devices = Some(with_time);
    assert_eq!(pool().plan(&tainted(devices(2), 0, "x"), &server.stored, 0), [], "times are no content");

    let both = tainted(tainted(devices(2), 0, "x"), 1, "y");
    let [Change::Update(update)] = &pool().plan(&both, &server.stored, 0)[..] else { panic!() };
    let added =
        |device: usize| update.spec.devices.as_ref().unwrap()[device].taints.as_ref().unwrap()[0].clone();
    assert_eq!((added(0).time_added, added(1).time_added), (Some(time), None));
    assert_eq!(update.metadata.resource_version.as_deref(), Some("1"));
    assert_eq!(update.metadata.labels.as_ref().unwrap()["a"], "b");

    let other = tainted(devices(2), 0, "z");
    let [Change::Update(update)] = &pool().plan(&other, &server.stored, 0)[..] else { panic!() };
    let taint = &update.spec.devices.as_ref().unwrap()[0].taints.as_ref().unwrap()[0];
    assert_eq!(taint.time_added, None, "another taint");
}

#[test]
fn names_are_short_enough_and_differ() {
    let named = |node: String| Pool { node, ..pool() }.name(3);
    assert_eq!(named("node-a".to_owned()), "node-a-cleanslate.dev-03");
    let long = |end: char| named(format!("{}{end}", "a.".repeat(125)));
    assert!(long('x').len() <= 253 && long('x').ends_with("-cleanslate.dev-03"), "{}", long('x'));
    assert_ne!(long('x'), long('y'));
    assert!(!long('x').contains(".-"));
}
