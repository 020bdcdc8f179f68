use super::*;

fn slice(name: &str, uid: &str, version: u64, generation: i64) -> ResourceSlice {
    let mut slice = ResourceSlice::default();
    slice.metadata.name = Some(name.to_owned());
    slice.metadata.uid = Some(uid.to_owned());
    slice.metadata.resource_version = Some(version.to_string());
    slice.spec.pool.generation = generation;
    slice
}

fn versions(mirror: &Mirror) -> Vec<String> {
    let slices = mirror.slices().into_iter().flat_map(BTreeMap::values);
    slices.map(|slice| slice.metadata.resource_version.clone().unwrap()).collect()
}

#[test]
fn nothing_is_known_before_the_first_list_has_ended() {
    let mut mirror = Mirror::default();
    for event in [Event::Init, Event::InitApply(slice("a", "1", 1, 3))] {
        mirror.hear(event);
        assert!(mirror.slices().is_none());
    }
    mirror.hear(Event::InitDone);
    assert_eq!((versions(&mirror), mirror.generation()), (vec!["1".to_owned()], 3));
    mirror.hear(Event::Init);
    assert_eq!(versions(&mirror), ["1"], "what is known counts until a new list has ended");
    mirror.hear(Event::InitDone);
    assert_eq!((versions(&mirror).len(), mirror.generation()), (0, 3), "its generation was seen");
}

#[test]
fn what_comes_late_says_nothing() {
    let mut mirror = Mirror::default();
    mirror.replace([slice("a", "1", 5, 1)]);
    mirror.put(slice("a", "1", 12, 1));
    mirror.hear(Event::Apply(slice("a", "1", 9, 1)));
    assert_eq!(versions(&mirror), ["12"], "numbers, not words");
    mirror.put(slice("a", "2", 15, 1));
    mirror.hear(Event::Delete(slice("a", "1", 14, 1)));
    assert_eq!(versions(&mirror), ["15"], "that was its predecessor");
    mirror.hear(Event::Delete(slice("a", "2", 16, 1)));
    assert!(versions(&mirror).is_empty());
}
