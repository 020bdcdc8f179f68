//! The story, line by line.

use std::time::{Duration, Instant};

use super::stage::{MEMORY, RESET_DEADLINE, Stage, text};
use super::{Twin, say};
use crate::observe::status::Status;
use crate::sim::{Counts, Fault};
use crate::types::PciAddress;

/// What the last tenant had in its memory.
const LEFTOVER: &[u8] = b"weights of the last tenant";
const LEFT_AT: u64 = 5 << 20;

/// Tells the story.
///
/// # Errors
/// The first line that does not hold.
pub(super) async fn tell(stage: &mut Stage, twin: Twin) -> Result<(), String> {
    let [first, hanging, other, _] = *stage.devices.as_slice() else { return Err("four devices".to_owned()) };
    say(
        "A simulated node with four accelerators. Nothing here is hardware; the daemon and its files are real.\n",
    );
    let info = &stage.kubelet.info;
    let found = format!(
        "driver {}, services {}, socket {}",
        info.name,
        info.supported_versions.join(" "),
        info.endpoint
    );
    line("the kubelet finds the driver by its registration socket", info.name == "cleanslate.dev", &found)?;

    first_proofs(stage).await?;
    published(stage).await?;
    misbehave(stage, twin)?;
    last_tenant(stage, first)?;
    let writes = stage.slice_writes();
    let token = first_claim(stage, first).await?;
    second_claim(stage, first).await?;
    let seen = format!("{writes} writes before these claims, {} now", stage.slice_writes());
    line("a slice change wakes every scheduler: claims cause none", stage.slice_writes() == writes, &seen)?;
    hang(stage, hanging, other, twin).await?;
    release(stage, first).await?;

    let (answer, took) = stage.prepare("tenant-e", first).await?;
    let status = stage.status().await?;
    let next = token_of(&status, "tenant-e");
    let higher = answer.error.is_empty() && next.as_deref().is_some_and(|next| epoch(next) > epoch(&token));
    let seen = format!("{} ms, token {} after {token}", took.as_millis(), next.unwrap_or_default());
    line("the device's next tenant gets it under a higher token, proved anew", higher, &seen)?;
    say("\nEverything above happened as told.");
    Ok(())
}

async fn first_proofs(stage: &Stage) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let status = stage.status().await?;
        let proved = status.ledger.devices.iter().filter(|device| device.schedulable).count();
        if proved == stage.devices.len() || start.elapsed() > Duration::from_secs(20) {
            let counts: Vec<_> =
                stage.devices.iter().filter_map(|device| stage.twin.counts(*device).ok()).collect();
            let once = counts.iter().all(|counts| *counts == Counts { resets: 1, scrubs: 1 });
            let took = start.elapsed().as_millis();
            let counted: Vec<_> = counts.iter().map(words).collect();
            let seen = format!("{proved} devices in {took} ms; the twins count {}", counted.join(", "));
            return line(
                "each device is reset and wiped once before anybody may ask for it",
                proved == 4 && once,
                &seen,
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn published(stage: &Stage) -> Result<(), String> {
    let names: Vec<_> = stage.devices.iter().map(PciAddress::device_name).collect();
    let (first, now) = slice(stage, |_, now| *now == names).await;
    let unverified =
        first.iter().filter(|device| device.contains("unverified=first_proof:NoSchedule")).count();
    let seen =
        format!("{unverified} of {} unverified in the first slice; now {}", first.len(), now.join(", "));
    line(
        "the scheduler sees the four in a ResourceSlice, each for use once it is proved",
        now == names,
        &seen,
    )
}

/// The slice as it was first and as it is, once it fits or 2 seconds have passed.
async fn slice(stage: &Stage, fits: impl Fn(&[String], &Vec<String>) -> bool) -> (Vec<String>, Vec<String>) {
    let start = Instant::now();
    loop {
        let (first, now) = stage.slice().unwrap_or_default();
        if fits(&first, &now) || start.elapsed() > Duration::from_secs(2) {
            return (first, now);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn misbehave(stage: &Stage, twin: Twin) -> Result<(), String> {
    let fault = match twin {
        Twin::Honest | Twin::NoHang => return Ok(()),
        Twin::DropWrites => Fault::DropWrites,
        Twin::SkipFill => Fault::SkipFill,
    };
    stage.devices.iter().try_for_each(|device| stage.twin.set_fault(*device, Some(fault)).map_err(text))
}

fn last_tenant(stage: &Stage, device: PciAddress) -> Result<(), String> {
    stage.twin.leave(device, LEFT_AT, LEFTOVER).map_err(text)?;
    let there = finds(stage, device)?;
    line("the last tenant's weights stand in the device's memory", there.is_some(), &at(there))
}

async fn first_claim(stage: &Stage, device: PciAddress) -> Result<String, String> {
    let before = stage.twin.counts(device).map_err(text)?;
    let (answer, took) = stage.prepare("tenant-a", device).await?;
    let seen =
        if answer.error.is_empty() { format!("{} ms", took.as_millis()) } else { answer.error.clone() };
    line("claim tenant-a is prepared", answer.error.is_empty() && answer.devices.len() == 1, &seen)?;
    let status = stage.status().await?;
    let claim = status.ledger.claims.iter().find(|claim| claim.record.claim.name == "tenant-a");
    let receipt = claim.and_then(|claim| claim.record.devices.first()?.receipt.as_ref());
    let receipt = receipt.ok_or("the granted claim has no receipt")?;
    for step in &receipt.steps {
        say(format!("      {:<8} {:>5} ms", step.step, step.ms));
    }
    let whole = receipt.bytes_verified == 2 * MEMORY && receipt.bytes_written == 2 * MEMORY;
    let seen = format!(
        "{} bytes written, {} read back, receipt {:.12}",
        receipt.bytes_written, receipt.bytes_verified, receipt.digest
    );
    line("every byte was overwritten and read back, twice", whole, &seen)?;
    let gone = finds(stage, device)?;
    let zero = stage.twin.memory(device).map_err(text)?.iter().all(|byte| *byte == 0);
    line("the last tenant's weights are gone, the memory is zero", gone.is_none() && zero, &at(gone))?;
    let counts = stage.twin.counts(device).map_err(text)?;
    let one = counts == Counts { resets: before.resets + 1, scrubs: before.scrubs + 1 };
    line(
        "the twin itself counted one reset and one wipe for it",
        one,
        &format!("{} before, {} now", words(&before), words(&counts)),
    )?;
    let token = token_of(&status, "tenant-a").ok_or("the granted claim has no token")?;
    let cdi = stage.cdi("tenant-a").unwrap_or_default();
    let named = cdi.contains(&format!("{device},{token}"));
    line("its CDI file gives the container the device and its token", named, &cdi)?;
    Ok(token)
}

async fn second_claim(stage: &Stage, device: PciAddress) -> Result<(), String> {
    let (answer, _) = stage.prepare("tenant-b", device).await?;
    let refused = answer.error.contains("tenant-a") && stage.cdi("tenant-b").is_none();
    line("a second claim for the same device is refused while the first holds it", refused, &answer.error)
}

async fn hang(stage: &Stage, hanging: PciAddress, other: PciAddress, twin: Twin) -> Result<(), String> {
    if twin != Twin::NoHang {
        stage.twin.set_fault(hanging, Some(Fault::HangReset)).map_err(text)?;
    }
    let (hung, through) = tokio::join!(stage.prepare("tenant-c", hanging), stage.prepare("tenant-d", other));
    let ((hung, hung_for), (through, took)) = (hung?, through?);
    let quarantined = hung.error.contains("reset_timeout");
    let devices = hung.devices.iter().map(|device| device.device_name.clone()).collect::<Vec<_>>();
    let seen =
        if quarantined { hung.error } else { format!("granted {} {}", devices.join(", "), hung.error) };
    line("a device whose reset hangs costs its claim", quarantined, &seen)?;
    let free = through.error.is_empty() && took < hung_for && took < RESET_DEADLINE;
    let seen = format!("{} ms, while the other hung for {} ms", took.as_millis(), hung_for.as_millis());
    line("another claim went through meanwhile", free, &seen)?;
    let status = stage.status().await?;
    let device = status.ledger.devices.iter().find(|device| device.address == hanging);
    let quarantine = device.and_then(|device| device.quarantine.as_ref());
    let kept = quarantine.is_some_and(|quarantine| quarantine.reason.as_str() == "reset_timeout");
    let seen = quarantine.map_or_else(String::new, |q| format!("{} ({}): {}", q.reason, q.class, q.evidence));
    line("the hung device is in quarantine", kept, &seen)?;
    let shown = format!("{} cleanslate.dev/quarantined=reset_timeout:NoExecute", hanging.device_name());
    let (_, slice) = slice(stage, |_, now| now.contains(&shown)).await;
    let is_shown = slice.contains(&shown);
    line("its slice sends the pod elsewhere and lets no other come", is_shown, &slice.join(", "))?;
    let (answer, _) = stage.prepare("tenant-c", hanging).await?;
    line("nobody gets it any more", answer.error.contains("quarantine"), &answer.error)
}

async fn release(stage: &Stage, device: PciAddress) -> Result<(), String> {
    stage.twin.leave(device, LEFT_AT, LEFTOVER).map_err(text)?;
    let before = stage.twin.counts(device).map_err(text)?;
    let (error, took) = stage.unprepare("tenant-a").await?;
    let ended = error.is_empty() && stage.cdi("tenant-a").is_none();
    line(
        "the pod ends: its claim is unprepared, its CDI file gone",
        ended,
        &format!("{} ms {error}", took.as_millis()),
    )?;
    let counts = stage.twin.counts(device).map_err(text)?;
    let gone = finds(stage, device)?;
    let cleaned = counts.scrubs == before.scrubs + 1 && counts.resets == before.resets + 1 && gone.is_none();
    line(
        "what the pod left was wiped before the call returned",
        cleaned,
        &format!("{} before, {} now", words(&before), words(&counts)),
    )
}

fn line(what: &str, holds: bool, seen: &str) -> Result<(), String> {
    if holds {
        say(format!("  ✓ {what}: {seen}"));
        return Ok(());
    }
    Err(format!("{what}. Seen instead: {seen}"))
}

fn words(counts: &Counts) -> String {
    let word = |number, word| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    format!("{} and {}", word(counts.resets, "reset"), word(counts.scrubs, "wipe"))
}

/// Where the leftover stands in the device's memory.
fn finds(stage: &Stage, device: PciAddress) -> Result<Option<usize>, String> {
    let memory = stage.twin.memory(device).map_err(text)?;
    Ok(memory.windows(LEFTOVER.len()).position(|window| window == LEFTOVER))
}

fn at(place: Option<usize>) -> String {
    place.map_or_else(|| "found nowhere".to_owned(), |place| format!("found at offset {place:#x}"))
}

fn token_of(status: &Status, claim: &str) -> Option<String> {
    let claim = status.ledger.claims.iter().find(|view| view.record.claim.name == claim)?;
    claim.record.devices.first().map(|device| device.token.to_string())
}

fn epoch(token: &str) -> u64 {
    token.split('.').next_back().and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}
