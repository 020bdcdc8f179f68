use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::sim::layout::Layout;

/// A device's `config`: what the device answers is written to it, and what others write to it is told to the device.
#[derive(Debug)]
pub(super) struct ConfigFile {
    path: PathBuf,
    file: File,
    /// What it held when we last looked.
    known: Vec<u8>,
    is_deaf: bool,
}

impl ConfigFile {
    pub(super) fn create(files: &Layout, path: PathBuf, content: &[u8]) -> io::Result<Self> {
        files.put(&path, content)?;
        let file = File::options().read(true).write(true).open(&path)?;
        Ok(Self { path, file, known: content.to_vec(), is_deaf: false })
    }

    /// Each run of bytes that others have written since, and where.
    pub(super) fn written(&mut self) -> io::Result<Vec<(usize, Vec<u8>)>> {
        let mut now = vec![0; self.known.len()];
        self.file.read_exact_at(&mut now, 0)?;
        let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
        for (at, (was, is)) in self.known.iter().zip(&now).enumerate() {
            match runs.last_mut() {
                _ if was == is => {}
                Some((start, run)) if *start + run.len() == at => run.push(*is),
                _ => runs.push((at, vec![*is])),
            }
        }
        self.known = now;
        Ok(runs)
    }

    /// Makes it hold what the device answers, in place, since whoever has it open sees the device and not a file.
    ///
    /// A device that has just become deaf gets another file of this name: who has the old one open writes to
    /// nobody, and sees it as soon as he opens it anew.
    pub(super) fn show(&mut self, files: &Layout, content: &[u8], is_deaf: bool) -> io::Result<()> {
        if self.known != content {
            // The first dword says whether the device answers: it is the first to go and the last to come.
            let answers = content.get(..4).is_some_and(|first| first[2..] != [0xff; 2]);
            let (first, rest) = content.split_at(4);
            if answers {
                self.file.write_all_at(rest, 4)?;
            }
            self.file.write_all_at(first, 0)?;
            if !answers {
                self.file.write_all_at(rest, 4)?;
            }
        }
        if is_deaf && !self.is_deaf {
            *self = Self::create(files, std::mem::take(&mut self.path), content)?;
        }
        (self.is_deaf, self.known) = (is_deaf, content.to_vec());
        Ok(())
    }
}
