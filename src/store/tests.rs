use serde_json::json;

use super::encoding::{decode, encode};
use super::*;

#[test]
fn a_record_comes_back_and_every_damage_is_seen() {
    let value = json!({"epoch": 7, "name": "pci-0000-3b-00-0"});
    let bytes = encode(&value);
    assert_eq!(decode(&bytes).unwrap(), value);
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            // A checksum in capital letters is the only other text with the same meaning; it is refused too.
            assert!(decode(&flipped).is_err(), "bit {bit} of byte {at}");
        }
    }
    assert!(decode(b"{}\n").is_err());
    assert!(decode(b"").is_err());
}

#[tokio::test]
async fn changes_survive_a_restart_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    {
        let (store, contents) = Store::open(folder.path()).unwrap();
        assert!(contents.own.is_none() && contents.records.is_empty());
        store.put_own(json!({"term": 1})).await.unwrap();
        let put = |name: &str| Change::Put(Folder::Claims, name.to_owned(), json!({"n": name}));
        store.apply(vec![put("a"), put("b")]).await.unwrap();
        let to = (Folder::Releasing, "a.x".to_owned());
        let remove = |name: &str| Change::Remove(Folder::Claims, name.to_owned());
        store
            .apply(vec![Change::Move((Folder::Claims, "a".to_owned()), to), remove("b"), remove("never")])
            .await
            .unwrap();
    }
    std::fs::File::create(folder.path().join("claims/half.tmp")).unwrap();
    let (_store, contents) = open_when_free(folder.path());
    assert_eq!(contents.own.unwrap().unwrap(), json!({"term": 1}));
    let names: Vec<_> = contents.records.iter().map(|found| (found.folder, found.name.as_str())).collect();
    assert_eq!(names, [(Folder::Releasing, "a.x")]);
    assert!(!folder.path().join("claims/half.tmp").exists());
}

/// The writer thread lets go of the lock a moment after the last sender is gone.
fn open_when_free(path: &Path) -> (Store, Contents) {
    loop {
        match Store::open(path) {
            Err(StoreError::InUse(_)) => std::thread::yield_now(),
            other => return other.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_second_store_and_an_unwritable_one_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let (_first, _) = Store::open(folder.path()).unwrap();
    let second = Store::open(folder.path()).unwrap_err().to_string();
    assert!(second.contains("in use by another cleanslate"), "{second}");
    let file = folder.path().join("file");
    std::fs::File::create(&file).unwrap();
    let third = Store::open(&file).unwrap_err().to_string();
    assert!(third.contains("writable folder"), "{third}");
}
