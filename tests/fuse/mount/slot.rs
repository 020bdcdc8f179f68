use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use cleanslate::sim::{Counts, Device, DeviceSpec, Links, Memory, Stored, Target, Wrote};
use fuser::{Errno, ReplyData, ReplyWrite};

/// One device, and whoever waits for it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) device: Device,
    pub(super) memory: Memory,
    pub(super) number: u32,
    pub(super) links: Links,
    /// The open file whose session of writes goes on.
    pub(super) session: Option<u64>,
    /// Who has written to `reset` and is not answered yet; the first one's reset goes on.
    writers: VecDeque<(ReplyWrite, u32)>,
    /// When that one is over; `None` with a writer: never.
    due: Option<Instant>,
    /// Accesses to config space, which the kernel holds back while it resets.
    held: Vec<Held>,
}

#[derive(Debug)]
enum Held {
    Read { reply: ReplyData, offset: usize, size: usize },
    Write { reply: ReplyWrite, offset: usize, bytes: Vec<u8> },
}

impl Slot {
    pub(super) fn new(spec: DeviceSpec, number: u32, links: Links) -> io::Result<Self> {
        spec.check().map_err(io::Error::other)?;
        let content = vec![0; usize::try_from(spec.memory).map_err(io::Error::other)?];
        let device = Device::new(spec, number, content.clone());
        let memory = Memory::over(content);
        let (writers, held) = (VecDeque::new(), Vec::new());
        Ok(Self { device, memory, number, links, session: None, writers, due: None, held })
    }

    pub(super) fn writers(&self) -> usize {
        self.writers.len()
    }

    /// A write to an attribute that is text.
    pub(super) fn store(&mut self, name: &str, bytes: &[u8], reply: ReplyWrite) {
        let length = count(bytes);
        match self.device.store(name, bytes) {
            Ok(Stored::Set) => reply.written(length),
            Ok(Stored::Resets) => self.writers.push_back((reply, length)),
            Err(errno) => reply.error(Errno::from_i32(errno as i32)),
        }
    }

    pub(super) fn read_config(&mut self, offset: usize, size: usize, reply: ReplyData) {
        if self.is_resetting() {
            return self.held.push(Held::Read { reply, offset, size });
        }
        let config = self.device.config();
        let end = config.len().min(offset.saturating_add(size));
        reply.data(config.get(offset..end).unwrap_or_default());
    }

    pub(super) fn write_config(&mut self, offset: usize, bytes: Vec<u8>, now: Instant, reply: ReplyWrite) {
        if self.is_resetting() {
            return self.held.push(Held::Write { reply, offset, bytes });
        }
        let _: Wrote = self.device.write_config(offset, &bytes, now);
        reply.written(count(&bytes));
    }

    pub(super) fn read_memory(&self, offset: usize, size: usize) -> Vec<u8> {
        let answer = self.memory.read(&self.device, offset, size);
        if self.is_resetting() { vec![0xff; answer.len()] } else { answer }
    }

    pub(super) fn write_memory(&mut self, target: Target, offset: usize, bytes: &[u8]) -> u32 {
        let target = if self.is_resetting() { Target::Nowhere } else { target };
        let written = self.memory.write(&self.device, target, offset, bytes);
        count(&bytes[..written])
    }

    /// A file is closed, by whoever else it may still be open.
    pub(super) fn closed(&mut self, handle: u64) {
        if self.session == Some(handle) {
            self.session = None;
            self.device.session_seen(self.memory.content().to_vec(), true);
        }
    }

    /// What it has been through, with what a session has written that goes on.
    pub(super) fn counts(&mut self) -> Counts {
        if self.session.is_some() {
            self.device.session_seen(self.memory.content().to_vec(), false);
        }
        self.device.counts()
    }

    pub(super) fn leave(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let beyond = || io::Error::new(io::ErrorKind::InvalidInput, "beyond the memory");
        let start = usize::try_from(offset).map_err(|_| beyond())?;
        let end = start.checked_add(bytes.len()).ok_or_else(beyond)?;
        self.memory.content_mut().get_mut(start..end).ok_or_else(beyond)?.copy_from_slice(bytes);
        self.device.left(self.memory.content().to_vec());
        Ok(())
    }

    pub(super) fn power_cycle(&mut self) -> io::Result<()> {
        getrandom::fill(self.memory.content_mut()).map_err(io::Error::other)?;
        self.device.power_cycle(self.memory.content().to_vec());
        Ok(())
    }

    /// Goes on to `now`; when something will happen by itself.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Instant> {
        self.device.advance(now);
        while !self.writers.is_empty() {
            match (self.due, self.device.reset_takes()) {
                (Some(due), _) if now < due => break,
                (Some(_), _) => {
                    self.due = None;
                    self.device.was_reset(1);
                    if let Some((reply, length)) = self.writers.pop_front() {
                        reply.written(length);
                    }
                }
                (None, Some(takes)) => self.due = Some(now + takes),
                (None, None) => break,
            }
        }
        if !self.is_resetting() {
            for held in std::mem::take(&mut self.held) {
                match held {
                    Held::Read { reply, offset, size } => self.read_config(offset, size, reply),
                    Held::Write { reply, offset, bytes } => self.write_config(offset, bytes, now, reply),
                }
            }
        }
        [self.due, self.device.resets_until()].into_iter().flatten().min()
    }

    /// The device is gone: whoever waits for it is told.
    pub(super) fn end(&mut self) {
        self.writers.drain(..).for_each(|(reply, _)| reply.error(Errno::ENODEV));
        for held in self.held.drain(..) {
            match held {
                Held::Read { reply, .. } => reply.error(Errno::ENODEV),
                Held::Write { reply, .. } => reply.error(Errno::ENODEV),
            }
        }
    }

    fn is_resetting(&self) -> bool {
        !self.writers.is_empty()
    }
}

fn count(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}
