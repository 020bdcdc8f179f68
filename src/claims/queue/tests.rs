use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::*;
use crate::types::AllocatedDevice;

fn uid() -> ClaimUid {
    "a-claim".to_owned().try_into().unwrap()
}

fn allocation(device: &str) -> Key {
    let device = AllocatedDevice { request: "acc".into(), pool: "node".into(), device: device.into() };
    Key::Prepare(Allocation { timestamp: None, devices: vec![device] })
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn refusal(text: &str) -> End {
    Err(Refusal(text.to_owned()))
}

#[tokio::test]
async fn calls_for_the_same_thing_share_one_job() {
    let queue = Queue::default();
    let begun = Arc::new(AtomicUsize::new(0));
    let call = || {
        let begun = Arc::clone(&begun);
        let work = async move {
            begun.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            refusal("one end for all")
        };
        let (queue, uid) = (queue.clone(), uid());
        async move { queue.run(&uid, allocation("d0"), soon(), work, String::new).await }
    };
    let ends = futures_util::future::join_all([call(), call(), call()]).await;
    assert!(ends.iter().all(|end| *end == refusal("one end for all")));
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn another_allocation_and_a_release_wait_for_their_turn() {
    let queue = Queue::default();
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |name: &'static str, key: Key| {
        let order = Arc::clone(&order);
        let work = async move {
            order.lock().unwrap().push(format!("{name} begins"));
            tokio::time::sleep(Duration::from_millis(20)).await;
            order.lock().unwrap().push(format!("{name} ends"));
            refusal(name)
        };
        let (queue, uid) = (queue.clone(), uid());
        async move { queue.run(&uid, key, soon(), work, String::new).await }
    };
    let calls = [call("one", allocation("d0")), call("two", allocation("d1")), call("out", Key::Unprepare)];
    let ends = futures_util::future::join_all(calls).await;
    assert_eq!(ends, [refusal("one"), refusal("two"), refusal("out")], "each call has its own job's end");
    let order = order.lock().unwrap();
    assert!(order.chunks(2).all(|pair| pair[0].replace("begins", "ends") == pair[1]), "{order:?}");
}

#[tokio::test]
async fn a_call_that_ends_early_stops_nothing_and_the_next_one_joins() {
    let queue = Queue::default();
    let (finish, finished) = oneshot::channel();
    let work = async move { finished.await.unwrap() };
    let short = Deadline::after(Duration::from_millis(30));
    let first = queue.run(&uid(), allocation("d0"), short, work, || "d0 scrub for 1 s".to_owned()).await;
    let told = first.unwrap_err().0;
    assert!(told.contains("d0 scrub for 1 s") && told.contains("next try"), "{told}");
    let never = async { panic!("there is a job already") };
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.run(&uid(), allocation("d0"), soon(), never, String::new).await }
    });
    finish.send(refusal("done at last")).unwrap();
    assert_eq!(second.await.unwrap(), refusal("done at last"));
}

#[tokio::test]
async fn a_queued_job_whose_caller_is_gone_is_never_begun() {
    let queue = Queue::default();
    let (finish, finished) = oneshot::channel();
    let first = tokio::spawn({
        let queue = queue.clone();
        let work = async move { finished.await.unwrap() };
        async move { queue.run(&uid(), allocation("d0"), soon(), work, String::new).await }
    });
    tokio::task::yield_now().await;
    let (begun, was_begun) = oneshot::channel::<()>();
    let queued = tokio::spawn({
        let queue = queue.clone();
        let work = async move { begun.send(()).map_or_else(|()| refusal(""), |()| refusal("")) };
        async move { queue.run(&uid(), allocation("d1"), soon(), work, String::new).await }
    });
    tokio::task::yield_now().await;
    queued.abort();
    assert!(queued.await.unwrap_err().is_cancelled());
    finish.send(refusal("first")).unwrap();
    assert_eq!(first.await.unwrap(), refusal("first"));
    assert!(was_begun.await.is_err(), "dropped unbegun");
}

#[tokio::test]
async fn a_job_that_panics_frees_its_place() {
    let queue = Queue::default();
    let broken = queue.run(&uid(), allocation("d0"), soon(), async { panic!("planned") }, String::new).await;
    assert!(broken.unwrap_err().0.contains("next try"));
    let next = queue.run(&uid(), allocation("d0"), soon(), async { refusal("anew") }, String::new).await;
    assert_eq!(next, refusal("anew"));
    assert!(queue.jobs.lock().unwrap().is_empty(), "no job is left behind");
    queue.drained().await;
}
