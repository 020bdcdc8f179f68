use std::os::unix::net::UnixStream as StdStream;

use futures_util::StreamExt as _;

use super::*;

/// What a killed instance leaves: a socket file that nobody listens on.
pub(crate) fn leave_stale(path: &Path) {
    drop(StdListener::bind(path).unwrap());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    leave_stale(&path);
    let live = Socket::bind(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = Socket::bind(&path).unwrap_err().to_string();
    assert!(error.contains("x.sock: somebody answers there; another instance is running"), "{error}");
    StdStream::connect(&path).unwrap();
    drop(live);
    assert!(!path.exists());
}

#[test]
fn a_live_socket_with_a_full_queue_is_live() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
    nix::sys::socket::bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let _queued = StdStream::connect(&path).unwrap();
    assert!(matches!(Socket::bind(&path), Err(SocketError::Taken { .. })));
}

#[test]
fn what_is_no_socket_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    fs::File::create(&path).unwrap();
    let error = Socket::bind(&path).unwrap_err().to_string();
    assert!(error.contains("it is there and no socket; remove it") && path.exists(), "{error}");
    let error = Socket::bind(&dir.path().join("absent/x.sock")).unwrap_err().to_string();
    assert!(error.contains("absent/x.sock: No such file"), "{error}");
    let error = Socket::bind(&dir.path().join("x".repeat(100))).unwrap_err().to_string();
    assert!(error.contains("at most 107 are possible"), "{error}");
}

#[test]
fn a_successors_socket_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let old = Socket::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let new = Socket::bind(&path).unwrap();
    drop(old);
    assert!(path.exists());
    drop(new);
    assert!(!path.exists());
}

#[tokio::test]
async fn our_own_user_is_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::bind(&dir.path().join("x.sock")).unwrap();
    let mut connections = std::pin::pin!(socket.connections().unwrap());
    let _caller = StdStream::connect(socket.path()).unwrap();
    assert!(connections.next().await.is_some());
}
