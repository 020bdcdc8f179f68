//! Plays the kubelet for a daemon on a twin: finds it by its registration socket and makes one call.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use cleanslate::sim::kubelet::{Kubelet, KubeletError};
use cleanslate::wire::dra::Claim;

/// Makes one call of the kubelet for one claim and prints the answer; exit code 1 if the claim is refused.
#[derive(Debug, Parser)]
#[command(name = "kubelet")]
struct Arguments {
    /// The daemon's --registry
    #[arg(long, value_name = "DIR")]
    registry: PathBuf,
    call: Call,
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Call {
    /// Before a pod starts
    Prepare,
    /// After it has ended
    Unprepare,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match call(Arguments::parse()).await {
        Ok(Ok(answer)) => {
            println!("{answer}");
            ExitCode::SUCCESS
        }
        Ok(Err(refusal)) => {
            eprintln!("refused: {refusal}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What the claim got, or why it was refused.
async fn call(arguments: Arguments) -> Result<Result<String, String>, KubeletError> {
    let Arguments { registry, call, namespace, name, uid } = arguments;
    let kubelet = Kubelet::register(&registry, Duration::from_secs(5)).await?;
    let claims = vec![Claim { namespace, name, uid: uid.clone() }];
    let (answer, error) = match call {
        Call::Prepare => {
            let answer = kubelet.prepare(claims).await?.remove(&uid).unwrap_or_default();
            let devices = answer.devices.iter();
            let lines =
                devices.map(|device| format!("{} {}", device.device_name, device.cdi_device_ids.join(" ")));
            (lines.collect::<Vec<_>>().join("\n"), answer.error)
        }
        Call::Unprepare => {
            let answer = kubelet.unprepare(claims).await?.remove(&uid).unwrap_or_default();
            ("released".to_owned(), answer.error)
        }
    };
    Ok(if error.is_empty() { Ok(answer) } else { Err(error) })
}
