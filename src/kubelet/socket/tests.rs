use std::os::unix::net::UnixListener;

use super::*;

const UID: &str = "5a4e2f8c-9d1b-4c3a-8e7f-0123456789ab";

fn names(registry: &str, plugins: &str, driver: &str, pod_uid: Option<&str>) -> Sockets {
    Sockets::new(Path::new(registry), Path::new(plugins), driver, pod_uid).unwrap()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn names_are_those_of_the_design() {
    let sockets =
        names("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins", "cleanslate.dev", Some(UID));
    assert_eq!(
        sockets.registration().to_str().unwrap(),
        format!("/var/lib/kubelet/plugins_registry/cleanslate.dev-{UID}@reg.sock")
    );
    assert_eq!(
        sockets.service().to_str().unwrap(),
        format!("/var/lib/kubelet/plugins/cleanslate.dev/dra-{UID}@.sock")
    );
}

#[test]
fn names_that_are_too_long_are_hashed_and_keep_their_end() {
    let long = format!("gpu.{}.example.com", "x".repeat(47));
    assert_eq!(long.len(), 63, "the longest that the API takes");
    let sockets = names("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins", &long, Some(UID));
    let (registration, service) = (sockets.registration(), sockets.service());
    assert!(registration.as_os_str().len() <= LONGEST_PATH && service.as_os_str().len() <= LONGEST_PATH);
    assert!(name(registration).starts_with("dra-") && name(registration).ends_with("@reg.sock"));
    assert!(name(service).starts_with("dra-") && name(service).ends_with("@.sock"));
    let again = names("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins", &long, Some(UID));
    assert_eq!(again, sockets);
    let other = names("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins", &long, Some("other"));
    assert_ne!(other.service(), service);
    assert_ne!(other.registration(), registration);

    let middle = names("/var/lib/kubelet/plugins_registry", "/p", &"d".repeat(40), Some(UID));
    assert!(name(middle.registration()).starts_with(&"d".repeat(40)), "{middle:?}");
    assert!(middle.registration().as_os_str().len() <= LONGEST_PATH);
}

#[test]
fn each_start_without_a_pod_has_names_of_its_own() {
    let one = names("/r", "/p", "cleanslate.dev", None);
    let other = names("/r", "/p", "cleanslate.dev", None);
    assert_ne!(one.registration(), other.registration());
    assert_ne!(one.service(), other.service());
    assert!(name(one.registration()).ends_with("@reg.sock"));
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    let new = |registry: &str, uid: Option<&str>| {
        Sockets::new(Path::new(registry), Path::new("/p"), "cleanslate.dev", uid).unwrap_err().to_string()
    };
    for uid in ["", "../x", "a@b", "a b", &"x".repeat(64)] {
        assert!(new("/r", Some(uid)).contains("is no UID: expected 1 to 63"), "{uid}");
    }
    assert!(new("/var/k@8s", None).contains("/var/k@8s has an '@' in its name"));
    assert!(names("r", "p", "d", None).service().is_absolute());
}

#[test]
fn dead_instances_are_cleaned_and_live_ones_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, plugins) = (dir.path().join("registry"), dir.path().join("plugins"));
    let folder = plugins.join("cleanslate.dev");
    fs::create_dir_all(&registry).unwrap();
    fs::create_dir_all(&folder).unwrap();
    let dead = [registry.join("cleanslate.dev-dead@reg.sock"), folder.join("dra-dead@.sock")];
    let kept = [registry.join("other.example-dead@reg.sock"), folder.join("dra.sock")];
    for path in dead.iter().chain(&kept) {
        drop(UnixListener::bind(path).unwrap());
    }
    let note = registry.join("cleanslate.dev-note@reg.sock");
    File::create(&note).unwrap();
    let live = registry.join("cleanslate.dev-live@reg.sock");
    let _live = UnixListener::bind(&live).unwrap();

    let sockets = Sockets::new(&registry, &plugins, "cleanslate.dev", Some("new")).unwrap();
    let service = sockets.bind_service().unwrap();
    assert!(service.path().ends_with("plugins/cleanslate.dev/dra-new@.sock"));
    assert!(!sockets.registration().exists(), "registration must not appear before the service is served");
    assert!(dead.iter().all(|path| !path.exists()));
    assert!(kept.iter().chain([&note, &live]).all(|path| path.exists()));

    let _registration = sockets.bind_registration().unwrap();
    let error = sockets.bind_service().unwrap_err().to_string();
    assert!(error.contains("dra-new@.sock: somebody answers there"), "{error}");
    let error = sockets.bind_registration().unwrap_err().to_string();
    assert!(error.contains("cleanslate.dev-new@reg.sock: somebody answers there"), "{error}");
}

#[test]
fn two_instances_do_not_bind_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let sockets = Sockets::new(dir.path(), dir.path(), "cleanslate.dev", None).unwrap();
    fs::create_dir_all(&sockets.folder).unwrap();
    let _other = sockets.lock().unwrap();
    let error = sockets.bind_service().unwrap_err().to_string();
    assert!(error.contains("another instance is starting this very moment"), "{error}");
}
