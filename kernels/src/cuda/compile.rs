//! CUDA C++ to machine code, by NVRTC, once.
//!
//! A compilation is keyed by everything that its result depends on: the text, the headers and defines that go
//! with it, the options, the architecture, and the compiler's version. What was compiled once is read from the
//! cache's folder the next time, by any process. The cache may be deleted at any time.
//!
//! The kernels of a plan are compiled together, which takes less time than one by one, but most of them are those of
//! another plan too, for another length say. So of each text is noted which compilation has it: a note is a third kind
//! of file in the cache, keyed as if the text were compiled alone.
//!
//! Reads: NVRTC User Guide, "Basic Usage" and "Supported Compile Options".

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use sha2::{Digest, Sha256};

use super::library::{self, Kind};

/// A text to compile.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// As messages name it: `exercise.cu`.
    pub name: &'a str,
    /// The text.
    pub text: &'a str,
    /// Texts that it may include, by name.
    pub headers: &'a [(&'a str, &'a str)],
    /// `-D` name and value.
    pub defines: &'a [(&'a str, u32)],
}

/// What to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Machine code and PTX for one architecture: (8, 0) is `sm_80`, and (9, 0) `sm_90a`, for `wgmma`.
    Machine((i32, i32)),
    /// PTX alone, which drivers compile for that architecture and later ones.
    Ptx((i32, i32)),
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// What [`super::Gpu::load`] takes: machine code, or PTX.
    pub image: Vec<u8>,
    /// The PTX.
    pub ptx: String,
    /// Whether it was read from the cache.
    pub cached: bool,
    /// How long it took, to compile or to read.
    pub took: Duration,
}

/// Why a text could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileError {
    /// There is no compiler.
    NoCompiler(library::NotFound),
    /// The compiler refused the text.
    Refused {
        /// The compiler's words, with the lines they are about.
        log: String,
        /// The line of the first error in the text itself, from 1.
        line: Option<usize>,
    },
    /// The compiler does not know the architecture: what it is, and what was asked.
    UnknownTarget(String),
    /// The compiler itself failed.
    Broken(String),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCompiler(reason) => write!(f, "{reason}; {}", reason.fix()),
            Self::Refused { log, .. } => f.write_str(log),
            Self::UnknownTarget(what) => f.write_str(what),
            Self::Broken(what) => write!(f, "the run-time compiler failed: {what}"),
        }
    }
}

impl std::error::Error for CompileError {}

/// Options of every compilation. Nothing is contracted: a fused multiply-add would give other bits than the
/// two roundings that a format asks for. Warnings would be about holes that are not filled yet.
const OPTIONS: [&str; 4] = ["--std=c++17", "--fmad=false", "--generate-line-info", "--disable-warnings"];

impl Target {
    fn option(self) -> String {
        match self {
            Self::Machine((9, 0)) => "--gpu-architecture=sm_90a".into(), // with what later cards do not have
            Self::Machine((major, minor)) => format!("--gpu-architecture=sm_{major}{minor}"),
            Self::Ptx((major, minor)) => format!("--gpu-architecture=compute_{major}{minor}"),
        }
    }
}

impl Source<'_> {
    /// SHA-256 of everything in it but its name, in hexadecimal digits.
    pub fn hash(&self) -> String {
        self.hash_of(str::to_owned)
    }

    /// The same without comments and blank lines, which change nothing that is compiled: what kept PTX is known by.
    pub fn code_hash(&self) -> String {
        self.hash_of(without_comments)
    }

    fn hash_of(&self, read: impl Fn(&str) -> String) -> String {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes()); // so that no two lists run together
            hash.update(text.as_bytes());
        };
        part(&read(self.text));
        for (name, text) in self.headers {
            part(name);
            part(&read(text));
        }
        part("defines");
        self.defines.iter().for_each(|(name, value)| part(&format!("{name}={value}")));
        for option in OPTIONS {
            part(option);
        }
        digits(&hash.finalize())
    }
}

/// A text without its line comments, its trailing spaces and its blank lines.
fn without_comments(text: &str) -> String {
    let code = text.lines().map(|line| before_comment(line).trim_end());
    code.filter(|line| !line.is_empty()).fold(String::new(), |text, line| text + line + "\n")
}

/// A line up to its comment; two slashes inside quotes begin none.
fn before_comment(line: &str) -> &str {
    let (mut quoted, mut before) = (false, ' ');
    for (at, letter) in line.char_indices() {
        match letter {
            '"' if before != '\\' => quoted = !quoted,
            '/' if !quoted && before == '/' => return &line[..at - 1],
            _ => {}
        }
        before = letter;
    }
    line
}

/// SHA-256 of a text, in hexadecimal digits.
pub(super) fn digest(text: &str) -> String {
    digits(&Sha256::digest(text.as_bytes()))
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Compiles, or reads what was compiled before.
///
/// # Errors
/// No compiler, or its words about the text.
pub fn compile(source: &Source<'_>, target: Target) -> Result<Compiled, CompileError> {
    let begin = Instant::now();
    library::open(Kind::Nvrtc).map_err(CompileError::NoCompiler)?;
    let entry = Entry::of(source, target);
    if let Some((image, ptx)) = entry.read() {
        return Ok(Compiled { image, ptx, cached: true, took: begin.elapsed() });
    }
    let (image, ptx) = fresh(source, target)?;
    entry.write(&image, &ptx);
    Ok(Compiled { image, ptx, cached: false, took: begin.elapsed() })
}

/// Code that several texts were compiled into.
pub(super) struct Unit {
    /// What [`super::Gpu::load`] takes.
    pub image: Vec<u8>,
    /// The numbers of the texts that were asked for and are in it.
    pub texts: Vec<usize>,
}

/// Compiles texts, each to be read after the prelude and beside any others, or reads what they were compiled into
/// before: those that are in no compilation yet are one.
///
/// # Errors
/// As [`compile`].
pub(super) fn compile_together(
    name: &str,
    prelude: &str,
    texts: &[String],
    target: Target,
) -> Result<Vec<Unit>, CompileError> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    library::open(Kind::Nvrtc).map_err(CompileError::NoCompiler)?;
    let entry = |text: &str| Entry::of(&Source { name, text, headers: &[], defines: &[] }, target);
    let alone: Vec<Entry> = texts.iter().map(|text| entry(&format!("{prelude}\n{text}"))).collect();
    let mut noted: BTreeMap<Option<String>, Vec<usize>> = BTreeMap::new();
    for (number, text) in alone.iter().enumerate() {
        noted.entry(text.noted()).or_default().push(number);
    }
    let (mut units, mut missing) = (Vec::new(), Vec::new());
    for (key, mut texts) in noted {
        match key.and_then(|key| alone[0].beside(&key).read()) {
            Some((image, _)) => units.push(Unit { image, texts }),
            None => missing.append(&mut texts),
        }
    }
    if !missing.is_empty() {
        missing.sort_unstable();
        let text = missing.iter().fold(prelude.to_owned(), |text, number| text + "\n" + &texts[*number]);
        let image = compile(&Source { name, text: &text, headers: &[], defines: &[] }, target)?.image;
        for number in &missing {
            alone[*number].note(&entry(&text));
        }
        units.push(Unit { image, texts: missing });
    }
    Ok(units)
}

/// Where compiled code is kept: `WARPBOOK_CACHE`, else the system's folder for caches; none if no such folder is
/// known.
pub fn cache_folder() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = named("WARPBOOK_CACHE") {
        return Some(folder);
    }
    let system = if cfg!(windows) {
        named("LOCALAPPDATA")
    } else {
        named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))
    };
    Some(system?.join("warpbook").join("cuda"))
}

/// A place in the cache: two files, the machine code and the PTX.
struct Entry {
    stem: Option<PathBuf>,
    machine: bool,
}

impl Entry {
    fn of(source: &Source<'_>, target: Target) -> Self {
        let (major, minor) = version();
        let key = format!("{} {} {major}.{minor}", source.hash(), target.option());
        let stem = cache_folder().map(|folder| folder.join(digits(&Sha256::digest(key.as_bytes()))));
        Self { stem, machine: matches!(target, Target::Machine(_)) }
    }

    /// What was written as a whole; one that was cut short or changed is compiled again.
    fn read(&self) -> Option<(Vec<u8>, String)> {
        let stem = self.stem.as_ref()?;
        let kept = std::fs::read_to_string(stem.with_extension("ptx")).ok()?;
        let (ptx, seal) = kept.rsplit_once(SEAL)?;
        let image = if self.machine { std::fs::read(stem.with_extension("cubin")).ok()? } else { ptx.into() };
        (seal == seal_of(&image, ptx)).then(|| (image, ptx.to_owned()))
    }

    /// A cache that cannot be written costs time, nothing else.
    fn write(&self, image: &[u8], ptx: &str) {
        let Some(stem) = &self.stem else { return };
        let Some(folder) = stem.parent() else { return };
        let sealed = format!("{ptx}{SEAL}{}", seal_of(image, ptx));
        let _ = std::fs::create_dir_all(folder)
            .and_then(|()| if self.machine { whole(&stem.with_extension("cubin"), image) } else { Ok(()) })
            .and_then(|()| whole(&stem.with_extension("ptx"), sealed.as_bytes()));
    }
}

/// Where a text's code is noted that was compiled together with others'.
impl Entry {
    /// The key of the compilation that has this text, as it was noted; a note that was changed says nothing.
    fn noted(&self) -> Option<String> {
        let note = std::fs::read_to_string(self.stem.as_ref()?.with_extension("in")).ok()?;
        let (key, _) = note.split_once(' ')?;
        (note == self.note_of(key)?).then(|| key.to_owned())
    }

    /// Notes the compilation; a cache that cannot be written costs time, nothing else.
    fn note(&self, compilation: &Entry) {
        let note = compilation.key().and_then(|key| self.note_of(key));
        if let (Some(stem), Some(note)) = (&self.stem, note) {
            let _ = whole(&stem.with_extension("in"), note.as_bytes());
        }
    }

    /// A compilation's key, and what seals it as this text's.
    fn note_of(&self, key: &str) -> Option<String> {
        Some(format!("{key} {}", digest(&format!("{} {key}", self.key()?))))
    }

    fn key(&self) -> Option<&str> {
        self.stem.as_ref()?.file_name()?.to_str()
    }

    /// The entry of another key in the same cache.
    fn beside(&self, key: &str) -> Self {
        Self { stem: self.stem.as_ref().map(|stem| stem.with_file_name(key)), machine: self.machine }
    }
}

/// What stands in a PTX file of the cache between the PTX and the seal.
const SEAL: &str = "\n// whole ";

/// SHA-256 of both files, in hexadecimal digits. They are renamed into their places one after the other, and another
/// process may write the same entry between.
fn seal_of(image: &[u8], ptx: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((ptx.len() as u64).to_le_bytes());
    hash.update(ptx.as_bytes());
    hash.update(image);
    digits(&hash.finalize())
}

/// Writes a file so that nobody ever sees half of it: beside its place, under a name that no other thread, process or
/// container has, and then renamed.
fn whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut aside = tempfile::Builder::new();
    let mut aside = readable(&mut aside).tempfile_in(path.parent().unwrap_or(Path::new(".")))?;
    std::io::Write::write_all(&mut aside, bytes)?;
    aside.persist(path)?;
    Ok(())
}

/// Others may read the file, if the umask lets them.
#[cfg(unix)]
fn readable<'b>(
    aside: &'b mut tempfile::Builder<'static, 'static>,
) -> &'b tempfile::Builder<'static, 'static> {
    aside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
}

/// There are no permissions to be set.
#[cfg(not(unix))]
fn readable<'b>(
    aside: &'b mut tempfile::Builder<'static, 'static>,
) -> &'b tempfile::Builder<'static, 'static> {
    aside
}

/// The compiler's version; (0, 0) if it does not tell.
fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is open; it writes two numbers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    (major, minor)
}

/// A program inside the compiler.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
    }
}

type Get<T> = unsafe fn(nvrtcProgram, T) -> nvrtcResult;

impl Program {
    fn new(source: &Source<'_>) -> Result<Self, CompileError> {
        let c = |text: &str| {
            CString::new(text).map_err(|_| CompileError::Refused {
                log: format!("{} holds a zero byte, which no text may", source.name),
                line: None,
            })
        };
        let (text, name) = (c(source.text)?, c(source.name)?);
        let names = source.headers.iter().map(|(name, _)| c(name)).collect::<Result<Vec<_>, _>>()?;
        let texts = source.headers.iter().map(|(_, text)| c(text)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |all: &[CString]| all.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, texts) = (pointers(&names), pointers(&texts));
        let mut program = std::ptr::null_mut();
        // SAFETY: every pointer is to a C string that outlives the call, which copies them.
        let made = unsafe {
            sys::nvrtcCreateProgram(
                &raw mut program,
                text.as_ptr(),
                name.as_ptr(),
                names.len() as i32,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        done("nvrtcCreateProgram", made)?;
        Ok(Self(program))
    }

    /// One of the compiler's answers: its size, then its bytes.
    fn answer(
        &self,
        call: &'static str,
        size: Get<*mut usize>,
        get: Get<*mut c_char>,
    ) -> Result<Vec<u8>, CompileError> {
        let mut length = 0;
        // SAFETY: the program is alive; one number is written.
        done(call, unsafe { size(self.0, &raw mut length) })?;
        let mut bytes = vec![0u8; length];
        // SAFETY: as many bytes are written as were announced.
        done(call, unsafe { get(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    /// An answer that is a C string.
    fn text(
        &self,
        call: &'static str,
        size: Get<*mut usize>,
        get: Get<*mut c_char>,
    ) -> Result<String, CompileError> {
        let bytes = self.answer(call, size, get)?;
        Ok(CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned())
    }
}

fn done(call: &'static str, result: nvrtcResult) -> Result<(), CompileError> {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        other => Err(CompileError::Broken(format!("{call}: {other:?}"))),
    }
}

fn fresh(source: &Source<'_>, target: Target) -> Result<(Vec<u8>, String), CompileError> {
    let program = Program::new(source)?;
    let options: Vec<String> = OPTIONS.iter().map(ToString::to_string).collect();
    let defines = source.defines.iter().map(|(name, value)| format!("--define-macro={name}={value}"));
    let options: Vec<CString> =
        options.into_iter().chain([target.option()]).chain(defines).map(c_option).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program is alive, and every pointer is to a C string that outlives the call.
    let compiled = unsafe { sys::nvrtcCompileProgram(program.0, pointers.len() as i32, pointers.as_ptr()) };
    if compiled == nvrtcResult::NVRTC_ERROR_COMPILATION {
        let log = program.text("nvrtcGetProgramLog", sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?;
        let line = first_error(&log, source.name);
        return Err(CompileError::Refused { log: log.trim().to_owned(), line });
    }
    if compiled == nvrtcResult::NVRTC_ERROR_INVALID_OPTION {
        let (major, minor) = version();
        let option = target.option();
        return Err(CompileError::UnknownTarget(format!("NVRTC {major}.{minor} does not take {option}")));
    }
    done("nvrtcCompileProgram", compiled)?;
    let ptx = program.text("nvrtcGetPTX", sys::nvrtcGetPTXSize, sys::nvrtcGetPTX)?;
    let image = match target {
        Target::Ptx(_) => ptx.clone().into_bytes(),
        Target::Machine(_) => program.answer("nvrtcGetCUBIN", sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)?,
    };
    Ok((image, ptx))
}

fn c_option(option: String) -> CString {
    CString::new(option).unwrap_or_default() // options are built here, of names and numbers
}

/// The line of the first `exercise.cu(12): error: ...` about the text itself.
fn first_error(log: &str, name: &str) -> Option<usize> {
    let errors = log.lines().filter(|line| line.contains("error"));
    let mut lines = errors.filter_map(|line| line.strip_prefix(name)?.strip_prefix('(')?.split_once(')'));
    lines.next()?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_from_the_compilers_words() {
        let log = "warpbook.cuh(3): error: x\nexercise.cu(12): warning: y\nexercise.cu(14): error: z\n";
        assert_eq!(first_error(log, "exercise.cu"), Some(14));
        assert_eq!(first_error("", "exercise.cu"), None);
    }

    #[test]
    fn a_comment_changes_no_code() {
        let of = |text| Source { name: "a.cu", text, headers: &[], defines: &[] };
        let (bare, message) =
            (of("f();\n  asm(\"// x\");\n"), of("// why\nf(); // here\n\n  asm(\"// x\");"));
        assert_eq!(bare.code_hash(), message.code_hash());
        assert_ne!(bare.hash(), message.hash());
        assert_ne!(of("asm(\"// x\");").code_hash(), of("asm(\"// y\");").code_hash());
    }

    #[test]
    fn a_torn_entry_of_the_cache_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        for machine in [true, false] {
            let entry = Entry { stem: Some(folder.path().join(format!("{machine}"))), machine };
            let (image, ptx) = if machine { (&b"\x7fELF code"[..], "text") } else { (&b"text"[..], "text") };
            assert_eq!(entry.read(), None);
            entry.write(image, ptx);
            assert_eq!(entry.read(), Some((image.to_vec(), ptx.to_owned())));
            for name in ["cubin", "ptx"] {
                let path = entry.stem.as_ref().expect("a place").with_extension(name);
                let Ok(all) = std::fs::read(&path) else { continue };
                for bytes in
                    (0..all.len()).map(|length| &all[..length]).chain([&[&all[..], b"x"].concat()[..]])
                {
                    std::fs::write(&path, bytes).expect("written");
                    assert_eq!(entry.read(), None, "{name} of {} bytes", bytes.len());
                }
                std::fs::write(&path, &all).expect("written");
            }
            assert!(entry.read().is_some());
        }
    }

    #[test]
    fn a_note_says_which_compilation_has_a_text_or_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let entry = |name: &str| Entry { stem: Some(folder.path().join(name)), machine: true };
        let [text, other, both] = ["text", "other", "both"].map(entry);
        assert_eq!(text.noted(), None);
        text.note(&both);
        assert_eq!(text.noted().as_deref(), Some("both"));
        assert_eq!(text.beside("both").read(), None, "the compilation itself is gone");
        both.write(b"code", "ptx");
        assert!(text.beside("both").read().is_some());
        let path = |entry: &Entry| entry.stem.as_ref().expect("a place").with_extension("in");
        std::fs::copy(path(&text), path(&other)).expect("copied");
        assert_eq!(other.noted(), None, "a note of another text");
        let note = std::fs::read_to_string(path(&text)).expect("written");
        for changed in
            ["", "both", "../both", &note[1..], &note[..note.len() - 1], &note.replace("both", "text")]
        {
            std::fs::write(path(&text), changed).expect("written");
            assert_eq!(text.noted(), None, "{changed}");
        }
        text.note(&both);
        assert_eq!(text.noted().as_deref(), Some("both"), "and is written anew");
        Entry { stem: None, machine: true }.note(&both);
    }

    #[test]
    fn who_writes_one_entry_at_once_leaves_it_whole_or_unread() {
        let folder = tempfile::tempdir().expect("a folder");
        let entry = || Entry { stem: Some(folder.path().join("one")), machine: true };
        let of = |n: usize| (vec![n as u8; 4096 * (n + 1)], format!("{n} ").repeat(1000));
        std::thread::scope(|scope| {
            for n in 0..6 {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let (image, ptx) = of(n);
                        entry().write(&image, &ptx);
                        if let Some(read) = entry().read() {
                            assert!((0..6).any(|n| of(n) == read));
                        }
                    }
                });
            }
        });
        let left = std::fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 2, "nothing is left beside the entry");
    }

    #[test]
    fn everything_that_a_result_depends_on_is_in_the_hash() {
        let source = Source { name: "a.cu", text: "x", headers: &[("h", "y")], defines: &[("A", 1)] };
        let others = [
            Source { text: "z", ..source },
            Source { headers: &[("h", "z")], ..source },
            Source { headers: &[("g", "y")], ..source },
            Source { headers: &[], ..source },
            Source { defines: &[("A", 2)], ..source },
            Source { defines: &[("B", 1)], ..source },
        ];
        assert!(others.iter().all(|other| other.hash() != source.hash()));
        assert_eq!(Source { name: "b.cu", ..source }.hash(), source.hash());
    }
}
