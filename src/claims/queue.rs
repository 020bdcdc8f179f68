//! One job a claim at a time. Joining, order and the end of patience live here and nowhere else.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::{PreparedDevice, Refusal};
use crate::types::{Allocation, ClaimUid, Deadline};

/// What a job ends with.
type End = Result<Vec<PreparedDevice>, Refusal>;

/// Jobs by claim.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    jobs: Arc<Mutex<HashMap<ClaimUid, Job>>>,
    tasks: TaskTracker,
}

/// Two calls with the same key want the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// This allocation is to be prepared.
    Prepare(Allocation),
    /// The claim is to be released.
    Unprepare,
}

#[derive(Debug)]
struct Job {
    key: Key,
    since: Instant,
    end: watch::Receiver<Option<End>>,
    /// Nobody wants what it prepares any more.
    stop: bool,
}

impl Queue {
    /// Joins the job of this key, or waits for the claim's present job to end and starts this one.
    ///
    /// A call that ends early, or reaches its deadline, stops nothing: the job goes on and the next call joins it.
    /// A job whose caller is gone before it began is never begun.
    pub(super) async fn run(
        &self,
        uid: &ClaimUid,
        key: Key,
        deadline: Deadline,
        work: impl Future<Output = End> + Send + 'static,
        doing: impl Fn() -> String,
    ) -> End {
        let mut work = Some(work);
        loop {
            let (mut end, since, ours) = self.present(uid, &key, &mut work);
            let ended = end.wait_for(Option::is_some);
            match tokio::time::timeout_at(deadline.at().into(), ended).await {
                Ok(Ok(result)) if ours => {
                    return result
                        .clone()
                        .unwrap_or_else(|| Err(Refusal("the job left no result".to_owned())));
                }
                Ok(Ok(_)) => {}
                Ok(Err(_)) => {
                    return Err(Refusal(
                        "the job ended without a result; the next try starts anew".to_owned(),
                    ));
                }
                Err(_) => {
                    let elapsed = since.elapsed().as_secs();
                    let doing = doing();
                    return Err(Refusal(format!(
                        "working: {doing}, {elapsed} s in all; it goes on and will be ready for the next try"
                    )));
                }
            }
        }
    }

    /// Asks the claim's present job, if it prepares, to end as soon as it can.
    pub(super) fn stop(&self, uid: &ClaimUid) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = jobs.get_mut(uid).filter(|job| job.key != Key::Unprepare) {
            job.stop = true;
        }
    }

    /// Whether the claim's present job was asked to end.
    pub(super) fn is_stopping(&self, uid: &ClaimUid) -> bool {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).get(uid).is_some_and(|job| job.stop)
    }

    /// Waits until every job has ended; no new ones may be started then.
    pub async fn drained(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn present(
        &self,
        uid: &ClaimUid,
        key: &Key,
        work: &mut Option<impl Future<Output = End> + Send + 'static>,
    ) -> (watch::Receiver<Option<End>>, Instant, bool) {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = jobs.get(uid) {
            return (job.end.clone(), job.since, job.key == *key);
        }
        let (tell, end) = watch::channel(None);
        let since = Instant::now();
        if let Some(work) = work.take() {
            jobs.insert(uid.clone(), Job { key: key.clone(), since, end: end.clone(), stop: false });
            let (uid, jobs) = (uid.clone(), Arc::clone(&self.jobs));
            self.tasks.spawn(async move {
                let gone = Leaving { uid, jobs };
                let result = work.await;
                // The place is free before the result is told: a call that comes then starts anew.
                drop(gone);
                tell.send_replace(Some(result));
            });
        }
        (end, since, true)
    }
}

/// Frees a claim's place, even when its job panics.
struct Leaving {
    uid: ClaimUid,
    jobs: Arc<Mutex<HashMap<ClaimUid, Job>>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

#[cfg(test)]
mod tests;
