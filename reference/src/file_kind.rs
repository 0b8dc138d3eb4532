//! Formats of files, recognised by their first bytes.
//!
//! A file with the right name often holds something else: a Git LFS pointer where a clone left the large files out, the
//! web page of a download that needed a login, a table in Parquet, a compressed copy. Every reader that meets bytes it
//! cannot use asks [`FileKind::of`], so the error names the format and the command that helps.
//!
//! Sources: the signatures in each format's specification; `spec.md` of Git LFS.

use std::fmt;

/// A format that a reader recognises but does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// The pointer that Git LFS stores instead of a large file.
    LfsPointer,
    /// A page of HTML, often an error page.
    Html,
    /// XML, often the error of a storage service.
    Xml,
    /// Text in UTF-16.
    Utf16,
    /// Text in UTF-32.
    Utf32,
    /// A gzip stream.
    Gzip,
    /// A Zstandard frame.
    Zstd,
    /// An xz stream.
    Xz,
    /// A bzip2 stream.
    Bzip2,
    /// An LZ4 frame.
    Lz4,
    /// A 7z archive.
    SevenZip,
    /// A zip archive, which `torch.save` writes too.
    Zip,
    /// A tar archive.
    Tar,
    /// A pickle of Python.
    Pickle,
    /// A Parquet table.
    Parquet,
    /// An Arrow or Feather file, or an Arrow stream.
    Arrow,
    /// An Avro container.
    Avro,
    /// An ORC table.
    Orc,
    /// An HDF5 file.
    Hdf5,
    /// A `NumPy` array.
    Numpy,
    /// A `SQLite` database.
    Sqlite,
    /// A PDF document.
    Pdf,
    /// A GGUF file.
    Gguf,
    /// A safetensors file.
    Safetensors,
}

/// The bytes of a file that [`FileKind::of`] looks at.
pub const LOOKED_AT: usize = 512;

impl FileKind {
    /// The format of a file, given its first bytes; `None` if they have no known signature.
    ///
    /// At most [`LOOKED_AT`] bytes are examined.
    pub fn of(begin: &[u8]) -> Option<Self> {
        let begin = &begin[..begin.len().min(LOOKED_AT)];
        let signed = SIGNATURES.iter().find(|(signature, _)| begin.starts_with(signature));
        let structured = || match begin {
            _ if is_tar(begin) => Some(Self::Tar),
            _ if is_arrow_stream(begin) => Some(Self::Arrow),
            _ if is_safetensors(begin) => Some(Self::Safetensors),
            _ => text(begin),
        };
        signed.map(|(_, kind)| *kind).or_else(structured)
    }

    /// The name of the format and what to do with such a file.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::LfsPointer => (
                "a Git LFS pointer instead of the file's content",
                "`git lfs pull` in its repository or `hf download` gets the content",
            ),
            Self::Html => {
                ("a web page (HTML)", "download the file itself; the page may say that it needs a login")
            }
            Self::Xml => {
                ("an XML document", "download the file itself; the document may say why that failed")
            }
            Self::Utf16 => ("text in UTF-16", "`iconv -f UTF-16 -t UTF-8` converts it"),
            Self::Utf32 => ("text in UTF-32", "`iconv -f UTF-32 -t UTF-8` converts it"),
            Self::Gzip => ("a gzip file", "`gunzip` unpacks it"),
            Self::Zstd => ("a Zstandard file", "`zstd -d` unpacks it"),
            Self::Xz => ("an xz file", "`xz -d` unpacks it"),
            Self::Bzip2 => ("a bzip2 file", "`bunzip2` unpacks it"),
            Self::Lz4 => ("an LZ4 file", "`lz4 -d` unpacks it"),
            Self::SevenZip => ("a 7z archive", "`7z x` unpacks it"),
            Self::Zip => (
                "a zip archive",
                "`unzip` unpacks it; a checkpoint of `torch.save` becomes safetensors with `save_pretrained`",
            ),
            Self::Tar => ("a tar archive", "`tar xf` unpacks it"),
            Self::Pickle => {
                ("a Python pickle", "`save_pretrained` of transformers writes a checkpoint as safetensors")
            }
            Self::Parquet => (
                "a Parquet table",
                "`pandas.read_parquet(FILE).to_json(OUT, orient=\"records\", lines=True)` converts it",
            ),
            Self::Arrow => {
                ("an Arrow table", "`Dataset.from_file(FILE).to_json(OUT)` of datasets converts it")
            }
            Self::Avro => ("an Avro file", "convert it to JSON lines"),
            Self::Orc => (
                "an ORC table",
                "`pandas.read_orc(FILE).to_json(OUT, orient=\"records\", lines=True)` converts it",
            ),
            Self::Hdf5 => ("an HDF5 file", "convert it to the expected format"),
            Self::Numpy => ("a NumPy array", "convert it to the expected format"),
            Self::Sqlite => ("a SQLite database", "export its table as JSON lines"),
            Self::Pdf => ("a PDF document", "convert it to the expected format"),
            Self::Gguf => ("a GGUF file", "its name must end in .gguf, and the path must name the file"),
            Self::Safetensors => ("a safetensors file", "its name must end in .safetensors"),
        }
    }
}

impl fmt::Display for FileKind {
    /// Writes the name of the format and what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, next) = self.words();
        write!(f, "{name}; {next}")
    }
}

/// Signatures at the first byte. A longer one comes before a shorter one that it begins with.
const SIGNATURES: [(&[u8], FileKind); 29] = [
    (b"version https://git-lfs", FileKind::LfsPointer),
    (b"version https://hawser", FileKind::LfsPointer),
    (b"version http://git-media", FileKind::LfsPointer),
    (b"\xff\xfe\0\0", FileKind::Utf32),
    (b"\0\0\xfe\xff", FileKind::Utf32),
    (b"\xff\xfe", FileKind::Utf16),
    (b"\xfe\xff", FileKind::Utf16),
    (b"\x1f\x8b", FileKind::Gzip),
    (b"\x28\xb5\x2f\xfd", FileKind::Zstd),
    (b"\xfd7zXZ\0", FileKind::Xz),
    (b"BZh", FileKind::Bzip2),
    (b"\x04\x22\x4d\x18", FileKind::Lz4),
    (b"7z\xbc\xaf\x27\x1c", FileKind::SevenZip),
    (b"PK\x03\x04", FileKind::Zip),
    (b"PK\x05\x06", FileKind::Zip),
    (b"\x80\x02", FileKind::Pickle),
    (b"\x80\x03", FileKind::Pickle),
    (b"\x80\x04\x95", FileKind::Pickle),
    (b"\x80\x05\x95", FileKind::Pickle),
    (b"PAR1", FileKind::Parquet),
    (b"PARE", FileKind::Parquet),
    (b"ARROW1", FileKind::Arrow),
    (b"FEA1", FileKind::Arrow),
    (b"Obj\x01", FileKind::Avro),
    (b"ORC", FileKind::Orc),
    (b"\x89HDF\r\n\x1a\n", FileKind::Hdf5),
    (b"\x93NUMPY", FileKind::Numpy),
    (b"SQLite format 3\0", FileKind::Sqlite),
    (b"GGUF", FileKind::Gguf),
];

/// Kinds of text: marked-up pages, PDF, and UTF-16 or UTF-32 without a byte order mark.
fn text(begin: &[u8]) -> Option<FileKind> {
    let text = without_bom(begin).trim_ascii_start();
    let starts = |word: &[u8]| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    if [&b"<!doctype"[..], b"<html", b"<head", b"<body", b"<!--"].into_iter().any(starts) {
        return Some(FileKind::Html);
    }
    if starts(b"<?xml") || starts(b"<error>") {
        return Some(FileKind::Xml);
    }
    if text.starts_with(b"%PDF-") {
        return Some(FileKind::Pdf);
    }
    let is_text = |byte: u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    match *begin {
        [0, 0, 0, byte, ..] | [byte, 0, 0, 0, ..] if is_text(byte) => Some(FileKind::Utf32),
        [0, one, 0, two, ..] | [one, 0, two, 0, ..] if is_text(one) && is_text(two) => Some(FileKind::Utf16),
        _ => None,
    }
}

/// Returns true if the bytes begin with a message of a stream, as `save_to_disk` of datasets writes.
fn is_arrow_stream(begin: &[u8]) -> bool {
    begin.len() >= 8 && begin[..4] == [0xff; 4] && begin[4..8] != [0; 4] && begin[7] < 0x80
}

fn is_tar(begin: &[u8]) -> bool {
    begin.get(257..262).is_some_and(|magic| magic == b"ustar")
}

/// Returns true if the bytes begin with a length below the format's limit and an object.
fn is_safetensors(begin: &[u8]) -> bool {
    begin.len() > 8 && begin[4..8] == [0; 4] && begin[8] == b'{'
}

/// Bytes without the byte order mark of UTF-8.
pub fn without_bom(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognised_by_their_first_bytes() {
        let safetensors = b"\x40\0\0\0\0\0\0\0{\"a\":{}}";
        for (begin, want) in [
            (
                &b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n"[..],
                Some(FileKind::LfsPointer),
            ),
            (b" \n<!DOCTYPE html><html>", Some(FileKind::Html)),
            (b"\xef\xbb\xbf<html lang=en>", Some(FileKind::Html)),
            (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", Some(FileKind::Xml)),
            (b"\xff\xfe{\0\"\0", Some(FileKind::Utf16)),
            (b"{\0\"\0t\0", Some(FileKind::Utf16)),
            (b"\0{\0\"\0t", Some(FileKind::Utf16)),
            (b"\xff\xfe\0\0{\0\0\0", Some(FileKind::Utf32)),
            (b"{\0\0\0\"\0\0\0", Some(FileKind::Utf32)),
            (b"\x1f\x8b\x08\0", Some(FileKind::Gzip)),
            (b"PAR1\x15\x04", Some(FileKind::Parquet)),
            (b"\xff\xff\xff\xff\x10\x01\0\0", Some(FileKind::Arrow)),
            (b"PK\x03\x04\0\0", Some(FileKind::Zip)),
            (b"GGUF\x03\0\0\0", Some(FileKind::Gguf)),
            (safetensors, Some(FileKind::Safetensors)),
            (b"{\"text\": \"<html>\"}", None),
            (b"<|im_start|>{{ messages }}", None),
            (b"\xef\xbb\xbf{}", None),
            (b"\x80", None),
            (b"", None),
        ] {
            assert_eq!(FileKind::of(begin), want, "{:?}", String::from_utf8_lossy(begin));
        }
        let mut tar = vec![b'a'; 257];
        tar.extend(b"ustar\0");
        assert_eq!(FileKind::of(&tar), Some(FileKind::Tar));
    }
}
