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
        let places = offset.min(end)..end;
        if !device.decodes() {
            return vec![0xff; places.len()];
        }
        places.map(|at| self.byte(device, at)).collect()
    }

    /// A write at `offset` in a session that goes to `target`; how many bytes there is room for.
    pub fn write(&mut self, device: &Device, target: Target, offset: usize, bytes: &[u8]) -> usize {
        let room = self.0.len().saturating_sub(offset).min(bytes.len());
        if target == Target::Memory && device.decodes() {
            for (at, byte) in (offset..).zip(&bytes[..room]) {
                if !self.is_lost(device, at) {
                    let place = self.place(device, at);
                    self.0[place] = *byte;
                }
            }
        }
        room
    }

    fn byte(&self, device: &Device, at: usize) -> u8 {
        let byte = self.0[self.place(device, at)];
        let is_stuck = device.spec().fault == Some(Fault::StuckBit) && at == self.0.len() / 2;
        if is_stuck { byte | 1 << 3 } else { byte }
    }

    /// Where a byte really is.
    fn place(&self, device: &Device, at: usize) -> usize {
        match device.spec().fault {
            Some(Fault::Alias) => at % (self.0.len() / 2),
            _ => at,
        }
    }

    fn is_lost(&self, device: &Device, at: usize) -> bool {
        device.spec().fault == Some(Fault::SkipChunk) && at >= self.0.len() / 4 * 3
    }
}
