use std::io::Write as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A server that gives each connection the same answer, or none.
async fn server(answer: Option<(&'static str, &'static str)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if let Some((status, body)) = answer {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = "GET /apis/resource.k8s.io/v1/namespaces/default/resourceclaims/far HTTP/1.1";
                assert!(request.starts_with(path), "{request}");
                let head =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
                let answer = format!("{head}content-type: application/json\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            open.push(stream);
        }
    });
    address
}

fn kubeconfig(server: &str, user: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {user}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n"
    )
    .unwrap();
    file
}

async fn client(server: &str) -> Client {
    Client::new(Some(kubeconfig(server, "{token: abc}").path())).await.unwrap()
}

#[tokio::test]
async fn a_claim_is_read_and_an_unknown_one_is_none() {
    let body = r#"{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"namespace":"default","name":"far","uid":"3f1c"},"spec":{}}"#;
    let found = client(&server(Some(("200 OK", body))).await).await.claim("default", "far").await.unwrap();
    assert_eq!(found.unwrap().metadata.uid.as_deref(), Some("3f1c"));
    let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","details":{"name":"far","kind":"resourceclaims"},"code":404}"#;
    let none = client(&server(Some(("404 Not Found", body))).await).await.claim("default", "far").await;
    assert!(none.unwrap().is_none());
}

/// Whose claim is gone loses its devices, so only the server's word that this very one is gone counts.
#[tokio::test]
async fn an_answer_that_is_about_something_else_does_not_say_that_a_claim_is_gone() {
    let kind = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#;
    let other = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"namespaces \"default\" not found","reason":"NotFound","details":{"name":"default","kind":"namespaces"},"code":404}"#;
    let object = |metadata: &str| {
        let text = format!(
            r#"{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{metadata},"spec":{{}}}}"#
        );
        &*text.leak()
    };
    let table = [
        (
            "404 Not Found",
            kind,
            "the API server refused: the server could not find the requested resource (code 404)",
        ),
        ("404 Not Found", other, "namespaces \"default\" not found (code 404)"),
        ("404 Not Found", "404 page not found", "the API server refused: 404 page not found (code 404)"),
        ("404 Not Found", "", "(code 404)"),
        ("200 OK", "{}", "the answer is no such claim: it is / with UID \"\""),
        ("200 OK", object("{}"), "the answer is no such claim"),
        ("200 OK", object(r#"{"namespace":"default","name":"far"}"#), "it is default/far with UID \"\""),
        (
            "200 OK",
            object(r#"{"namespace":"default","name":"near","uid":"1"}"#),
            "it is default/near with UID",
        ),
        ("200 OK", object(r#"{"namespace":"other","name":"far","uid":"1"}"#), "it is other/far with UID"),
    ];
    for (status, body, expected) in table {
        let answer = client(&server(Some((status, body))).await).await.claim("default", "far").await;
        let error = answer.expect_err(body).to_string();
        assert!(error.starts_with("GET ResourceClaim default/far: ") && error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    let body =
        format!(r#"{{"apiVersion":"resource.k8s.io/v1","metadata":{{"name":"{}"}}}}"#, "x".repeat(LARGEST));
    let answer = client(&server(Some(("200 OK", body.leak()))).await).await.claim("default", "far").await;
    let error = answer.unwrap_err().to_string();
    assert!(error.contains("length limit exceeded"), "{error}");
}

#[tokio::test]
async fn what_went_wrong_is_named_with_the_call() {
    let forbidden = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"resourceclaims is forbidden: no get","reason":"Forbidden","code":403}"#;
    let table = [
        (
            server(Some(("403 Forbidden", forbidden))).await,
            "the API server refused: resourceclaims is forbidden: no get (code 403)",
        ),
        (server(Some(("200 OK", "{\"kind\": 7}"))).await, "deserializing response"),
        ("http://127.0.0.1:1".to_owned(), "Connection refused"),
    ];
    for (server, expected) in table {
        let error = client(&server).await.claim("default", "far").await.unwrap_err().to_string();
        assert!(error.starts_with("GET ResourceClaim default/far: ") && error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_limit() {
    let mut client = client(&server(None).await).await;
    assert_eq!(client.limit, Duration::from_secs(5));
    client.limit = Duration::from_millis(100);
    let error = client.claim("default", "far").await.unwrap_err().to_string();
    assert!(
        error.contains("GET ResourceClaim default/far: no answer of the API server within 100 ms"),
        "{error}"
    );
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_named() {
    let error = Client::new(Some(Path::new("/nowhere/config"))).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot use the kubeconfig /nowhere/config: "), "{error}");
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        let error = Client::new(None).await.unwrap_err().to_string();
        assert!(
            error.contains("expected to run in a pod with a service account, or --kubeconfig"),
            "{error}"
        );
    }
    // TLS is set up without a panic: one crypto provider only is linked.
    client("https://127.0.0.1:1").await.claim("default", "far").await.unwrap_err();
}
