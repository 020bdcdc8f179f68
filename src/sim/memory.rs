use super::{Device, Fault, Target};

/// A device's memory behind a mount that sees every access.
#[derive(Clone, Debug)]
pub struct Memory(Vec<u8>);

impl Memory {
    /// Memory that holds `content`.
    #[must_use]
    pub fn over(content: Vec<u8>) -> Self {
        Self(content)
    }

    /// What is in it, whoever can read it.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.0
    }

    /// Changes what is in it, whoever can write it: a tenant, or power.
    pub fn content_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// What a read of `length` bytes at `offset` answers; less at its end.
    #[must_use]
    pub fn read(&self, device: &Device, offset: usize, length: usize) -> Vec<u8> {
        let end = self.0.len().min(offset.saturating_add(length));
        let start = offset.min(end);
        if !device.decodes() {
            return vec![0xff; end - start];
        }
        match device.spec().fault {
            Some(Fault::Alias) => (start..end).map(|at| self.0[self.alias(at)]).collect(),
            Some(Fault::StuckBit) => {
                let stuck = self.0.len() / 2;
                (start..end).map(|at| self.0[at] | u8::from(at == stuck) << 3).collect()
            }
            _ => self.0[start..end].to_vec(),
        }
    }

    /// A write at `offset` in a session that goes to `target`; how many bytes there is room for.
    pub fn write(&mut self, device: &Device, target: Target, offset: usize, bytes: &[u8]) -> usize {
        let start = offset.min(self.0.len());
        let room = bytes.len().min(self.0.len() - start);
        if target == Target::Nowhere || !device.decodes() {
            return room;
        }
        let (end, bytes) = (start + room, &bytes[..room]);
        match device.spec().fault {
            Some(Fault::Alias) => {
                for (at, byte) in (start..).zip(bytes) {
                    let place = self.alias(at);
                    self.0[place] = *byte;
                }
            }
            Some(Fault::SkipChunk) => {
                let kept = end.min(self.0.len() / 4 * 3).saturating_sub(start);
                self.0[start..start + kept].copy_from_slice(&bytes[..kept]);
            }
            _ => self.0[start..end].copy_from_slice(bytes),
        }
        room
    }

    fn alias(&self, at: usize) -> usize {
        at % (self.0.len() / 2)
    }
}
