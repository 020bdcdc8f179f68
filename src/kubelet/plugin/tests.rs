use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Barrier;

use super::*;

fn claim(namespace: &str, name: &str, uid: &str) -> wire::Claim {
    wire::Claim { namespace: namespace.to_owned(), name: name.to_owned(), uid: uid.to_owned() }
}

fn claims(count: usize) -> Vec<wire::Claim> {
    (0..count).map(|number| claim("default", "far", &format!("uid-{number}"))).collect()
}

#[tokio::test]
async fn no_claims_and_many_claims_are_answered() {
    let ok = |claim: ClaimRef| async move { Ok::<_, String>(claim.uid.to_string()) };
    assert_eq!(answer_each("prepare", Vec::new(), ok).await.unwrap().len(), 0);
    let answers = answer_each("prepare", claims(MOST_CLAIMS), ok).await.unwrap();
    assert_eq!(answers.len(), MOST_CLAIMS);
    assert!(answers.iter().all(|(uid, answer)| answer.as_ref() == Ok(uid)));
    let status = answer_each("prepare", claims(MOST_CLAIMS + 1), ok).await.unwrap_err();
    assert_eq!(status.message(), "1025 claims in one call: at most 1024");
}

#[tokio::test]
async fn all_claims_of_a_call_run_side_by_side() {
    let together = Barrier::new(8);
    let wait = |_| async {
        together.wait().await;
        Ok::<_, String>(())
    };
    let answers = tokio::time::timeout(Duration::from_secs(5), answer_each("prepare", claims(8), wait)).await;
    assert_eq!(answers.unwrap().unwrap().len(), 8);
}

#[tokio::test]
async fn a_refusal_and_a_panic_are_those_claims_errors_only() {
    let handle = |claim: ClaimRef| async move {
        match claim.uid.as_str() {
            "uid-0" => panic!("planted"),
            "uid-1" => Err("device is held".to_owned()),
            _ => Ok(()),
        }
    };
    let answers = answer_each("prepare", claims(3), handle).await.unwrap();
    let panicked = answers["uid-0"].as_ref().unwrap_err();
    assert!(panicked.contains("claim default/far (uid-0): internal error in prepare, a panic"), "{panicked}");
    assert_eq!(answers["uid-1"].as_ref().unwrap_err(), "device is held");
    assert!(answers["uid-2"].is_ok());
}

#[tokio::test]
async fn a_reference_that_can_be_no_claim_is_its_own_error() {
    let long = "x".repeat(254);
    let table = [
        (claim("default", "far", ""), "\"\" is no claim UID: expected 1 to 63 letters"),
        (claim("default", "far", "../../etc"), "\"../../etc\" is no claim UID"),
        (claim("default", "far", &"u".repeat(4000)), "is no claim UID"),
        (claim("default", "far", "-x"), "\"-x\" is no claim UID"),
        (claim("", "far", "a"), "\"\" is no namespace of a claim: expected 1 to 63 lower-case letters"),
        (claim("a/b", "far", "b"), "\"a/b\" is no namespace"),
        (claim("a.b", "far", "c"), "\"a.b\" is no namespace"),
        (claim("default", "", "d"), "\"\" is no name of a claim: expected 1 to 253 lower-case letters"),
        (claim("default", &long, "e"), "is no name of a claim"),
        (claim("default", "../pods/x", "f"), "\"../pods/x\" is no name of a claim"),
        (claim("default", "far?x=1", "g"), "\"far?x=1\" is no name of a claim"),
        (claim("default", "fär", "h"), "\"fär\" is no name of a claim"),
    ];
    let mut sent: Vec<wire::Claim> = table.iter().map(|(claim, _)| claim.clone()).collect();
    sent.extend([claim("default", "far", "twice"), claim("default", "near", "twice")]);
    sent.push(claim("kube-system", "a.b-c.0", "good"));
    let handled = AtomicUsize::new(0);
    let handle = |_| async {
        handled.fetch_add(1, Ordering::Relaxed);
        Ok::<_, String>(())
    };
    let answers = answer_each("prepare", sent, handle).await.unwrap();
    assert_eq!(answers.len(), table.len() + 2);
    for (claim, expected) in table {
        let error = answers[&claim.uid].as_ref().unwrap_err();
        assert!(error.contains(expected) && error.len() < 400, "{error}");
    }
    let twice = answers["twice"].as_ref().unwrap_err();
    assert!(twice.contains("UID stands 2 times in this call: expected each claim once"), "{twice}");
    assert!(answers["good"].is_ok());
    assert_eq!(handled.into_inner(), 1);
}

#[test]
fn a_prepared_device_is_passed_on_whole() {
    let device = PreparedDevice {
        requests: vec!["acc".to_owned()],
        pool: "node1".to_owned(),
        device: "pci-0000-3b-00-0".to_owned(),
        cdi_ids: vec!["cleanslate.dev/claim=a-pci-0000-3b-00-0".to_owned()],
    };
    let answer = prepared(Ok(vec![device]));
    assert_eq!(answer.error, "");
    assert_eq!(answer.devices[0].request_names, ["acc"]);
    assert_eq!(answer.devices[0].cdi_device_ids, ["cleanslate.dev/claim=a-pci-0000-3b-00-0"]);
    assert_eq!(
        (&*answer.devices[0].pool_name, &*answer.devices[0].device_name),
        ("node1", "pci-0000-3b-00-0")
    );
}
