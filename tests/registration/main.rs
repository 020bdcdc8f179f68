//! The kubelet's side of registration, C15: what its client puts on the wire must reach our service.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod http2;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use cleanslate::kubelet::registration::{self, KubeletVerdict, Registration};
use cleanslate::kubelet::socket::Sockets;
use cleanslate::unix::Socket;
use cleanslate::wire::registration::registration_client::RegistrationClient;
use cleanslate::wire::registration::{InfoRequest, PluginInfo, RegistrationStatus};
use prost::Message as _;

use http2::{Answer, call, grpc_go_authority};

const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
const POD_UID: &str = "5a4e2f8c-9d1b-4c3a-8e7f-0123456789ab";
const PROTOCOL_ERROR: u32 = 1;

struct Plugin {
    sockets: Sockets,
    registration: Registration,
    service: Socket,
    dir: tempfile::TempDir,
}

fn sockets(dir: &Path) -> Sockets {
    Sockets::new(&dir.join("plugins_registry"), &dir.join("plugins"), "cleanslate.dev", Some(POD_UID))
        .unwrap()
}

fn start() -> Plugin {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("plugins_registry")).unwrap();
    let sockets = sockets(dir.path());
    let service = sockets.bind_service().unwrap();
    let socket = sockets.bind_registration().unwrap();
    let registration = registration::serve(socket, "cleanslate.dev", sockets.service()).unwrap();
    Plugin { sockets, registration, service, dir }
}

async fn client(socket: &Path) -> RegistrationClient<tonic::transport::Channel> {
    RegistrationClient::connect(format!("unix:{}", socket.display())).await.unwrap()
}

fn assert_registers(answer: &Answer, endpoint: &Path) {
    assert_eq!((answer.grpc_status, answer.reset), (Some(0), None), "{answer:?}");
    assert!(answer.took < Duration::from_secs(1), "the kubelet waits one second: {:?}", answer.took);
    let info = PluginInfo::decode(&*answer.message).unwrap();
    assert_eq!(info.r#type, "DRAPlugin");
    assert_eq!(info.name, "cleanslate.dev");
    assert_eq!(Path::new(&info.endpoint), endpoint);
    assert_eq!(
        info.supported_versions,
        ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    );
}

#[test]
fn c15_the_kubelets_authority_reaches_get_info() {
    let plugin = start();
    let socket = plugin.sockets.registration();
    let authority = grpc_go_authority(socket);
    assert!(authority.starts_with("%2F") && authority.ends_with("@reg.sock"), "{authority}");
    for authority in [Some(authority.as_str()), Some("localhost"), None] {
        assert_registers(&call(socket, authority, GET_INFO), plugin.sockets.service());
    }
}

/// The `@` is what does it: with any other name the server resets the stream before our code is asked.
#[test]
fn c15_without_the_at_sign_the_kubelet_never_gets_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cleanslate.dev-reg.sock");
    let socket = Socket::bind(&path).unwrap();
    let _registration = registration::serve(socket, "cleanslate.dev", Path::new("/x")).unwrap();
    let refused = call(&path, Some(&grpc_go_authority(&path)), GET_INFO);
    assert_eq!((refused.reset, refused.grpc_status), (Some(PROTOCOL_ERROR), None), "{refused:?}");
    assert_registers(&call(&path, Some("localhost"), GET_INFO), Path::new("/x"));
}

/// The service socket's name has it too, for callers that dial it by its path.
#[test]
fn c15_holds_for_the_service_sockets_name() {
    let plugin = start();
    let path = plugin.sockets.service().to_owned();
    drop(plugin.service);
    let socket = Socket::bind(&path).unwrap();
    let _registration = registration::serve(socket, "cleanslate.dev", Path::new("/x")).unwrap();
    assert_registers(&call(&path, Some(&grpc_go_authority(&path)), GET_INFO), Path::new("/x"));
}

#[tokio::test]
async fn the_kubelets_verdict_is_kept() {
    let plugin = start();
    let mut verdict = plugin.registration.verdict();
    assert_eq!(*verdict.borrow_and_update(), KubeletVerdict::Waiting);
    let mut client = client(plugin.sockets.registration()).await;
    client.get_info(InfoRequest {}).await.unwrap();
    assert!(!verdict.has_changed().unwrap());
    let words = "DRA driver cleanslate.dev is already registered";
    for (plugin_registered, error, expected) in
        [(false, words, KubeletVerdict::Refused(words.to_owned())), (true, "", KubeletVerdict::Registered)]
    {
        let status = RegistrationStatus { plugin_registered, error: error.to_owned() };
        client.notify_registration_status(status).await.unwrap();
        assert_eq!(*verdict.borrow_and_update(), expected);
    }
}

#[test]
fn a_second_daemon_is_refused_and_disturbs_nothing() {
    let plugin = start();
    let second = sockets(plugin.dir.path());
    for error in [second.bind_service().unwrap_err(), second.bind_registration().unwrap_err()] {
        assert!(error.to_string().contains("somebody answers there; another instance is running"), "{error}");
    }
    assert_registers(&call(second.registration(), Some("localhost"), GET_INFO), second.service());
}

#[tokio::test]
async fn half_open_connections_delay_neither_an_answer_nor_the_stop() {
    let plugin = start();
    let path = plugin.sockets.registration().to_owned();
    let preface_only = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let half_open: Vec<UnixStream> = (0..200)
        .map(|number| {
            let mut stream = UnixStream::connect(&path).unwrap();
            let bytes: &[u8] = [&preface_only[..], &preface_only[..7], &[]][number % 3];
            stream.write_all(bytes).unwrap();
            stream
        })
        .collect();
    assert_registers(&call(&path, None, GET_INFO), plugin.sockets.service());

    let begun = Instant::now();
    plugin.registration.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(!path.exists(), "the kubelet takes us out when the socket is gone");
    assert!(plugin.sockets.service().exists(), "the service socket outlives the registration");
    drop(half_open);
    drop(plugin.service);
    assert!(!plugin.sockets.service().exists());
}

#[tokio::test]
async fn it_registers_again_after_a_stop() {
    let plugin = start();
    plugin.registration.stop().await;
    drop(plugin.service);
    let service = plugin.sockets.bind_service().unwrap();
    let socket = plugin.sockets.bind_registration().unwrap();
    let mut registration = registration::serve(socket, "cleanslate.dev", plugin.sockets.service()).unwrap();
    let mut client = client(plugin.sockets.registration()).await;
    client.get_info(InfoRequest {}).await.unwrap();
    tokio::select! {
        ended = registration.ended() => panic!("{ended:?}"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    drop(service);
}
