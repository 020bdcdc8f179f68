use std::io::Write as _;

use super::*;
use crate::types::ClaimUid;

const CLAIM: &str = r#"
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: far, uid: 3f1c-77}
spec: {}
status:
  allocation:
    devices:
      results:
        - {driver: cleanslate.dev, pool: node1, request: acc, device: pci-0000-3b-00-0}
        - {driver: nic.example, pool: node1, request: nic, device: eth1}
      config:
        - {source: FromClaim, opaque: {driver: nic.example, parameters: {any: [.nan, ~, 0x7]}}}
"#;

fn reference(namespace: &str, uid: &str) -> ClaimRef {
    let uid = ClaimUid::try_from(uid.to_owned()).unwrap();
    ClaimRef { namespace: namespace.to_owned(), name: "far".to_owned(), uid }
}

fn put(dir: &Path, name: &str, text: &str) {
    fs::File::create(dir.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
}

async fn fetch(dir: &Path, claim: &ClaimRef) -> Result<Claim, FetchError> {
    let scope =
        Scope { driver: "cleanslate.dev".to_owned(), pool: "node1".to_owned(), node: "node1".to_owned() };
    ClaimSource::Folder(dir.to_owned()).fetch(claim, &scope).await
}

#[tokio::test]
async fn a_claim_is_found_among_damaged_files() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a.json", "{\"apiVersion\": \"resource.k8s.io/v1\", ");
    put(dir.path(), "b.yml", "- 1\n");
    put(dir.path(), "large.yml", &"é".repeat(1 << 20));
    put(dir.path(), "larger.yml", &"é".repeat((1 << 20) + 1));
    put(dir.path(), "note.txt", CLAIM);
    put(dir.path(), "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: far}\n");
    fs::create_dir(dir.path().join("folder.yaml")).unwrap();
    nix::unistd::mkfifo(&dir.path().join("pipe.yaml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    put(dir.path(), "z.yaml", &CLAIM.replace("name: far", "name: far, namespace: other"));

    let error = fetch(dir.path(), &reference("default", "3f1c-77")).await.unwrap_err().to_string();
    assert!(error.starts_with("claim default/far (3f1c-77): not found in /"), "{error}");
    for damaged in
        ["a.json: ", "b.yml: ", "pod.yaml: ", "large.yml: ", "larger.yml: it has more than 2097152 bytes"]
    {
        assert!(error.contains(damaged), "{error}");
    }
    for other in ["z.yaml", "note.txt", "folder.yaml", "pipe.yaml"] {
        assert!(!error.contains(other), "{error}");
    }

    put(dir.path(), "c.yaml", CLAIM);
    let claim = fetch(dir.path(), &reference("default", "3f1c-77")).await.unwrap();
    assert_eq!(claim.allocation.devices[0].device, "pci-0000-3b-00-0");
    assert_eq!(claim.allocation.devices.len(), 1);
    fetch(dir.path(), &reference("other", "3f1c-77")).await.unwrap();

    let error = fetch(dir.path(), &reference("default", "3f1c-78")).await.unwrap_err().to_string();
    assert!(error.starts_with("claim default/far (3f1c-78): was replaced"), "{error}");
    put(dir.path(), "copy.yaml", CLAIM);
    let error = fetch(dir.path(), &reference("default", "3f1c-77")).await.unwrap_err().to_string();
    assert!(error.contains("stands in both") && error.contains("copy.yaml"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let error = fetch(Path::new("/nowhere"), &reference("default", "3f1c")).await.unwrap_err().to_string();
    assert!(error.contains("cannot read the folder of claim files /nowhere: No such file"), "{error}");
}
