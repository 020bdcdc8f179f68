//! Attributes of one function below `<sys>/bus/pci/devices/<address>`.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::types::{PciAddress, Roots};

/// Bytes of the longest attribute: the kernel shows each in one page.
const LONGEST: u64 = 4096;
/// Of what makes no sense as much is told.
const EXCERPT: usize = 64;

/// An attribute that cannot be read or makes no sense. It travels inside an [`io::Error`] of its kind; [`errno`] finds
/// the system's number in there.
#[derive(Debug, thiserror::Error)]
#[error("{attribute}: {source}")]
struct Unreadable {
    attribute: String,
    source: io::Error,
}

/// The system's error number, also of an error that names its attribute.
#[must_use]
pub fn errno(error: &io::Error) -> Option<i32> {
    let named = || error.get_ref()?.downcast_ref::<Unreadable>()?.source.raw_os_error();
    error.raw_os_error().or_else(named)
}

/// Puts an attribute's name before what is wrong with it.
pub(super) fn named(attribute: &str) -> impl FnOnce(io::Error) -> io::Error {
    let attribute = attribute.to_owned();
    move |source| io::Error::new(source.kind(), Unreadable { attribute, source })
}

/// An attribute that was read and holds what it cannot.
#[must_use]
pub fn senseless(attribute: &str, text: &str, right: &str) -> io::Error {
    let shown: String = text.chars().take(EXCERPT).collect();
    let more = if shown.len() < text.len() { " and more" } else { "" };
    io::Error::new(io::ErrorKind::InvalidData, format!("{attribute} holds {shown:?}{more}: expected {right}"))
}

/// The text of a file of sysfs, without the newline at its end.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    if bytes.len() as u64 > LONGEST {
        return Err(bad(format!("more than {LONGEST} bytes, the most that the kernel shows")));
    }
    let text = String::from_utf8(bytes).map_err(|error| bad(format!("no UTF-8: {}", error.utf8_error())))?;
    Ok(text.trim_end().to_owned())
}

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
    /// It is not there, cannot be read, is no UTF-8 or longer than any attribute.
    pub fn text(&self, attribute: &str) -> io::Result<String> {
        read(&self.path(attribute)).map_err(named(attribute))
    }

    /// An attribute that not every function has; `None` where it is not there.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn optional(&self, attribute: &str) -> io::Result<Option<String>> {
        match self.text(attribute) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
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
        u32::from_str_radix(digits, 16).map_err(|_| senseless(attribute, &text, "a hexadecimal number"))
    }

    /// Where a link such as `driver` points, its last component; `None` where there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn link_name(&self, attribute: &str) -> io::Result<Option<String>> {
        match fs::read_link(self.path(attribute)) {
            Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named(attribute)(error)),
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
    let folder = roots.pci_devices();
    for entry in fs::read_dir(&folder).map_err(named(&folder.display().to_string()))? {
        if let Ok(address) = entry?.file_name().to_string_lossy().parse() {
            found.push(address);
        }
    }
    found.sort();
    // Digits of either case name one function.
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a failure is called depends on the number.
    #[test]
    fn an_error_with_its_attributes_name_keeps_its_number_and_kind() {
        for number in [libc::EACCES, libc::EROFS, libc::ENODEV, libc::EIO, libc::ENOENT] {
            let bare = io::Error::from_raw_os_error(number);
            let (kind, words) = (bare.kind(), format!("config: {bare}"));
            let error = named("config")(bare);
            assert_eq!((errno(&error), error.kind(), error.to_string()), (Some(number), kind, words));
        }
        assert_eq!(errno(&senseless("vendor", "x", "a number")), None);
    }

    #[test]
    fn of_what_makes_no_sense_only_the_beginning_is_told() {
        let words = senseless("vendor", &"é".repeat(4000), "a number").to_string();
        assert!(words.len() < 200 && words.ends_with("é\" and more: expected a number"), "{words}");
    }
}
