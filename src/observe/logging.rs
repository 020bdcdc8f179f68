//! Log lines on standard error.

use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A log that cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The level is none.
    #[error(
        "--log-level (or CLEANSLATE_LOG) {0:?}: expected off, error, warn, info, debug or trace, also by module \
         as in info,cleanslate::kubelet=debug"
    )]
    Level(String),
    /// It is set up already.
    #[error("logging is set up twice in one process")]
    Twice,
}

/// Sends log lines of `level` and above to standard error; as JSON unless a person reads them there, or as
/// asked.
///
/// # Errors
/// When `level` is none, or at a second call.
pub fn init(format: Option<Format>, level: &str) -> Result<(), LoggingError> {
    let terminal = io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { Format::Text } else { Format::Json });
    let subscriber = subscriber(format, level, io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LoggingError::Twice)
}

fn subscriber<W>(
    format: Format,
    level: &str,
    writer: W,
) -> Result<impl Subscriber + Send + Sync + use<W>, LoggingError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = match format {
        Format::Text => fmt::layer().with_writer(writer).boxed(),
        Format::Json => fmt::layer().json().flatten_event(true).with_writer(writer).boxed(),
    };
    Ok(tracing_subscriber::registry().with(filter(level)?).with(lines))
}

fn filter(level: &str) -> Result<Targets, LoggingError> {
    let wrong = || LoggingError::Level(level.to_owned());
    // A misspelt level would pass for the name of a module and silence all others.
    let mut plain = level.split(',').map(str::trim).filter(|part| !part.contains('='));
    if plain.any(|part| part.is_empty() || part.parse::<LevelFilter>().is_err()) {
        return Err(wrong());
    }
    let mut targets: Targets = level.parse().map_err(|_| wrong())?;
    // They tell each failed try; we tell what they answer once, until it changes.
    for told in ["kube_client", "kube_runtime"] {
        if !level.contains(told) {
            targets = targets.with_target(told, LevelFilter::OFF);
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::{debug, info};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, level: &str) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(format, level, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            info!(claim = "default/far", "claim refused");
            debug!("unseen");
            debug!(target: "other::module", "seen of another");
        });
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_has_a_line_an_event_and_its_fields_at_the_top() {
        let lines = logged(Format::Json, "info");
        let line: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
        assert_eq!(line["message"], "claim refused");
        assert_eq!(line["claim"], "default/far");
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn text_is_for_people_and_levels_can_be_set_by_module() {
        let lines = logged(Format::Text, "info,other=debug");
        assert!(lines.contains(" INFO ") && lines.contains("claim refused claim=\"default/far\""), "{lines}");
        assert!(lines.contains("seen of another") && !lines.contains("unseen"), "{lines}");
        assert_eq!(logged(Format::Text, "off"), "");
    }

    #[test]
    fn a_level_that_is_none_is_refused() {
        for level in ["", "inof", "cleanslate", "info,", "cleanslate=loud", "info,debgu"] {
            let error = filter(level).unwrap_err().to_string();
            assert!(error.contains("expected off, error, warn, info, debug or trace"), "{level}: {error}");
        }
    }
}
