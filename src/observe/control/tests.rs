use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use tokio::io::AsyncReadExt as _;

use super::*;

struct Daemon {
    dir: tempfile::TempDir,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<io::Result<()>>,
}

/// Releases `good`, refuses `held`, panics at `bug` and is silent at `stuck`.
fn start() -> Daemon {
    let dir = tempfile::tempdir().unwrap();
    let socket = Socket::bind(&path(dir.path())).unwrap();
    let stop = CancellationToken::new();
    let handle = |request| async move {
        match request {
            Request::Status => Answer::Done(serde_json::json!({"devices": ["x".repeat(100_000)]})),
            Request::QuarantineRelease { device, reason } => match device.as_str() {
                "bug" => panic!("planted"),
                "stuck" => std::future::pending().await,
                "held" => Answer::Refused("device held has no quarantine".to_owned()),
                _ => Answer::Done(serde_json::json!({"device": device, "reason": reason})),
            },
        }
    };
    let token = stop.clone();
    let serving = tokio::spawn(async move { serve(&socket, handle, token).await });
    Daemon { dir, stop, serving }
}

impl Daemon {
    async fn release(&self, device: &str) -> Result<Answer, ControlError> {
        let request =
            Request::QuarantineRelease { device: device.to_owned(), reason: "swap\nped".to_owned() };
        call(self.dir.path(), &request).await
    }

    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path(self.dir.path())).await.unwrap();
        // A daemon that has heard enough closes before all is written.
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }
}

#[tokio::test]
async fn requests_are_answered() {
    let daemon = start();
    let mode = std::fs::metadata(path(daemon.dir.path())).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let Answer::Done(status) = call(daemon.dir.path(), &Request::Status).await.unwrap() else { panic!() };
    assert_eq!(status["devices"][0].as_str().unwrap().len(), 100_000);
    let done = serde_json::json!({"device": "good", "reason": "swap\nped"});
    assert_eq!(daemon.release("good").await.unwrap(), Answer::Done(done));
    let refused = Answer::Refused("device held has no quarantine".to_owned());
    assert_eq!(daemon.release("held").await.unwrap(), refused);
}

#[tokio::test]
async fn the_wire_is_one_line_of_json_each_way() {
    let daemon = start();
    let request = r#"{"op":"quarantine_release","device":"good","reason":"r"}"#;
    let expected = "{\"done\":{\"device\":\"good\",\"reason\":\"r\"}}\n";
    assert_eq!(daemon.raw(format!("{request}\n").as_bytes()).await, expected);
    assert_eq!(daemon.raw(request.as_bytes()).await, expected, "the end of the stream ends a line too");
    for (bytes, problem) in [
        (&b"\n"[..], "the request cannot be understood"),
        (b"{\"op\":\"reboot\"}\n", "unknown variant `reboot`, expected `status` or `quarantine_release`"),
        (b"{\"op\":\"quarantine_release\",\"device\":\"d\"}\n", "missing field `reason`"),
        (b"\xff\xfe\n", "expected one line of JSON"),
    ] {
        let answer = daemon.raw(bytes).await;
        assert!(answer.starts_with("{\"refused\":") && answer.contains(problem), "{answer}");
    }
    let answer = daemon.raw(&vec![b'x'; 3 * LONGEST_REQUEST]).await;
    assert!(answer.is_empty() || answer.contains("too long: expected at most 65536 bytes"), "{answer}");
}

#[tokio::test]
async fn half_open_stuck_and_crashed_clients_block_nobody() {
    let daemon = start();
    let mut half_open = Vec::new();
    for _ in 0..200 {
        let mut stream = UnixStream::connect(path(daemon.dir.path())).await.unwrap();
        stream.write_all(b"{\"op\":").await.unwrap();
        half_open.push(stream);
    }
    let stuck = tokio::time::timeout(Duration::from_millis(50), daemon.release("stuck")).await;
    assert!(stuck.is_err());
    let error = daemon.release("bug").await.unwrap_err().to_string();
    assert!(error.contains("control.sock failed: it closed the connection without an answer"), "{error}");

    let begun = Instant::now();
    let calls = (0..50).map(|_| daemon.release("good"));
    assert!(futures_util::future::join_all(calls).await.iter().all(Result::is_ok));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());

    let mut byte = [0];
    assert_eq!(half_open[0].read(&mut byte).await.unwrap(), 0, "who says nothing is let go");
    assert!(begun.elapsed() < Duration::from_secs(10));
    daemon.stop.cancel();
    daemon.serving.await.unwrap().unwrap();
    assert!(!path(daemon.dir.path()).exists());
}

#[tokio::test]
async fn a_daemon_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let missing = call(dir.path(), &Request::Status).await.unwrap_err().to_string();
    assert!(missing.contains("control.sock: is `cleanslate run` running on this node"), "{missing}");
    drop(std::os::unix::net::UnixListener::bind(path(dir.path())).unwrap());
    let dead = call(dir.path(), &Request::Status).await.unwrap_err();
    assert!(matches!(dead, ControlError::NoDaemon(_)), "{dead}");
}
