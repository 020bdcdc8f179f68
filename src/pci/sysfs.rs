//! Attributes of one function below `<sys>/bus/pci/devices/<address>`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::types::{PciAddress, Roots};

/// More than any attribute that we read; the kernel's own limit is a page.
const LONGEST: u64 = 64 * 1024;

/// The folder of a function.
#[derive(Clone, Debug)]
pub struct Function {
    folder: PathBuf,
}

impl Function {
    /// The function at an address.
    #[must_use]
    pub fn at(roots: &Roots, address: PciAddress) -> Self {
        Self { folder: roots.pci_device(address) }
    }

    /// Path of an attribute.
    #[must_use]
    pub fn path(&self, attribute: &str) -> PathBuf {
        self.folder.join(attribute)
    }

    /// Whether the kernel still has the function.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// An attribute's text without the newline at its end.
    ///
    /// # Errors
    /// It is not there, cannot be read, is no UTF-8 or far too long.
    pub fn text(&self, attribute: &str) -> io::Result<String> {
        let mut text = String::new();
        fs::File::open(self.path(attribute))?.take(LONGEST).read_to_string(&mut text)?;
        Ok(text.trim_end().to_owned())
    }

    /// Writes an attribute. A twin's is a plain file, which has to be truncated; sysfs does not care.
    ///
    /// # Errors
    /// It is not there, or the kernel refuses.
    pub fn set(&self, attribute: &str, text: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.path(attribute))?;
        file.write_all(text.as_bytes())
    }

    /// A hexadecimal attribute such as `vendor`, with or without `0x`.
    ///
    /// # Errors
    /// As [`Function::text`], or it is no number.
    pub fn hex(&self, attribute: &str) -> io::Result<u32> {
        let text = self.text(attribute)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        u32::from_str_radix(digits, 16).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{attribute} holds {text:?}, no hexadecimal number"),
            )
        })
    }

    /// Where a link such as `driver` points, its last component; `None` where there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn link_name(&self, attribute: &str) -> io::Result<Option<String>> {
        match fs::read_link(self.path(attribute)) {
            Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// The addresses of all functions, in order. Names that are no addresses are passed over.
///
/// # Errors
/// The folder of devices cannot be read.
pub fn functions(roots: &Roots) -> io::Result<Vec<PciAddress>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(roots.pci_devices())? {
        if let Ok(address) = entry?.file_name().to_string_lossy().parse() {
            found.push(address);
        }
    }
    found.sort();
    Ok(found)
}
