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

/// Folders become files: nobody, root included, can write there until they are folders again.
#[tokio::test]
async fn what_is_owed_is_made_in_order_and_before_what_came_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let put = |folder, name: &str, n: u32| Change::Put(folder, name.to_owned(), json!({ "n": n }));
    store.apply(vec![put(Folder::Claims, "b", 1)]).await.unwrap();
    let claims = folder.path().join("claims");
    let broken = |broken: bool| {
        let kept = folder.path().join("kept");
        let (from, to) = if broken { (&claims, &kept) } else { (&kept, &claims) };
        if !broken {
            fs::remove_file(&claims).unwrap();
        }
        fs::rename(from, to).unwrap();
        if broken {
            File::create(&claims).unwrap();
        }
    };
    broken(true);
    let moved = Change::Move((Folder::Claims, "b".to_owned()), (Folder::Releasing, "b.x".to_owned()));
    let owed = vec![put(Folder::Claims, "a", 1), put(Folder::Devices, "d", 1)];
    assert!(store.owe(owed).await.is_err());
    assert!(store.owe(vec![moved]).await.is_err());
    assert_eq!(store.unwritten(), 3, "the device's waits for the claim's: what restricts comes first");
    store.apply(vec![put(Folder::Quarantine, "q", 1)]).await.unwrap();
    assert!(store.apply(vec![put(Folder::Devices, "d", 2)]).await.is_err(), "an earlier one is owed");
    assert!(store.owe(vec![put(Folder::Devices, "d", 3)]).await.is_err());
    broken(false);
    store.apply(vec![put(Folder::Claims, "a", 2), put(Folder::Claims, "b", 2)]).await.unwrap();
    assert_eq!(store.unwritten(), 0);
    let n = |path: &str| decode(&fs::read(folder.path().join(path)).unwrap()).unwrap()["n"].clone();
    let found = ["claims/a.json", "claims/b.json", "releasing/b.x.json", "devices/d.json"].map(n);
    assert_eq!(found, [2, 2, 1, 3].map(|n| json!(n)));
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
