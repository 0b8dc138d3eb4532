//! The private connection between the grader and a child: orders one way, results the other.
//!
//! On Unix the child's standard input is one end of a socket pair. The child takes a private copy of it, and
//! standard input becomes what an attempt expects: empty. No other process inherits the copy, and a socket cannot
//! be opened a second time by its path under `/proc`. On Windows orders come through standard input and results
//! leave by standard error; the child takes private copies of both, and an attempt's standard error becomes its
//! standard output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::Command;

use process_wrap::std::ChildWrapper;

/// Bytes of a line from a child: 10,000 samples in full precision.
pub(super) const LINE_BYTES: usize = 256 * 1024;

/// A line from a child.
pub(super) enum Line {
    /// Whole, without its end.
    Whole(Vec<u8>),
    /// More than [`LINE_BYTES`].
    TooLong,
}

/// Reads a line of at most [`LINE_BYTES`]; `None` at the end.
pub(super) fn read_line(from: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    from.take(LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    let ends = line.last() == Some(&b'\n');
    line.truncate(line.len() - usize::from(ends));
    Ok(Some(if ends || line.len() <= LINE_BYTES { Line::Whole(line) } else { Line::TooLong }))
}

#[cfg(unix)]
mod system {
    use std::io::PipeReader;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::Stdio;

    use super::{BufReader, ChildWrapper, Command, io};

    /// How long an order may stay unread.
    const UNREAD: std::time::Duration = std::time::Duration::from_mins(1);

    /// A child's way to the grader.
    pub(in super::super) type Results = UnixStream;

    /// The grader's end.
    pub(in super::super) struct Link(UnixStream, PipeReader);

    /// A connection whose other end is the standard input of what `command` starts.
    pub(in super::super) fn connect(command: &mut Command) -> io::Result<Link> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_write_timeout(Some(UNREAD))?; // a small buffer and a child that never reads
        let (printed, prints) = io::pipe()?; // one for both, so that what is printed keeps its order
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(prints.try_clone()?).stderr(prints);
        Ok(Link(ours, printed))
    }

    impl Link {
        /// Where orders are written, where results are read, and where what the attempt prints is.
        pub fn split(self, _: &mut dyn ChildWrapper) -> io::Result<(UnixStream, UnixStream, PipeReader)> {
            Ok((self.0.try_clone()?, self.0, self.1))
        }
    }

    /// A child's own end. Must be called before the attempt runs.
    pub(in super::super) fn private() -> io::Result<(BufReader<UnixStream>, Results)> {
        let private = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        nix::unistd::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok((BufReader::new(private.try_clone()?), private))
    }
}

#[cfg(windows)]
mod system {
    #![allow(unsafe_code)] // what the standard handles of a process are is set by a function of the system

    use std::fs::File;
    use std::io::{PipeReader, PipeWriter};
    use std::os::windows::io::{AsHandle, FromRawHandle, IntoRawHandle, OwnedHandle};
    use std::process::Stdio;

    use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation};
    use windows_sys::Win32::System::Console::{
        GetStdHandle, STD_ERROR_HANDLE, STD_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, SetStdHandle,
    };

    use super::{BufReader, ChildWrapper, Command, io};

    /// A child's way to the grader.
    pub(in super::super) type Results = PipeWriter;

    /// The grader's end: where orders are written, where results are read, and where what the attempt prints is.
    pub(in super::super) struct Link(PipeWriter, PipeReader, PipeReader);

    /// Lets what `command` starts read orders from its standard input and write results to its standard error. A
    /// process inherits every handle that may be inherited: this one's own streams are not among them any more.
    pub(in super::super) fn connect(command: &mut Command) -> io::Result<Link> {
        for stream in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
            // SAFETY: a stream that is closed is refused by the system, and no handle is closed.
            unsafe { SetHandleInformation(GetStdHandle(stream), HANDLE_FLAG_INHERIT, 0) };
        }
        let ((orders, ours), (results, theirs), (printed, prints)) = (io::pipe()?, io::pipe()?, io::pipe()?);
        command.stdin(Stdio::from(orders)).stdout(Stdio::from(prints)).stderr(Stdio::from(theirs));
        Ok(Link(ours, results, printed))
    }

    impl Link {
        /// Where orders are written, where results are read, and where what the attempt prints is.
        pub fn split(self, _: &mut dyn ChildWrapper) -> io::Result<(PipeWriter, PipeReader, PipeReader)> {
            Ok((self.0, self.1, self.2))
        }
    }

    /// A child's own end. Must be called before the attempt runs, and before anything is written as an error.
    pub(in super::super) fn private() -> io::Result<(BufReader<PipeReader>, Results)> {
        let nothing = File::open("NUL")?.into_raw_handle();
        // SAFETY: the handle is asked for, not used.
        let prints = unsafe { GetStdHandle(STD_OUTPUT_HANDLE) };
        let orders = taken(STD_INPUT_HANDLE, nothing)?;
        let results = taken(STD_ERROR_HANDLE, prints)?;
        Ok((BufReader::new(PipeReader::from(orders)), PipeWriter::from(results)))
    }

    /// A copy of a standard handle that no other process inherits; another handle is the standard one from now on.
    fn taken(which: STD_HANDLE, instead: HANDLE) -> io::Result<OwnedHandle> {
        // SAFETY: the process was started with this handle, and nobody else closes it.
        let given = unsafe { OwnedHandle::from_raw_handle(GetStdHandle(which)) };
        // SAFETY: both handles are open; the one that is set stays so as long as the process lives.
        if unsafe { SetStdHandle(which, instead) } == 0 {
            return Err(io::Error::last_os_error());
        }
        given.as_handle().try_clone_to_owned()
    }
}

pub(super) use system::{Results, connect, private};

/// Writes one line; an error is that of a child that is gone, which its results tell, too.
pub(super) fn write_line(to: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_an_end_is_cut_at_its_limit() {
        let mut endless = BufReader::new(io::repeat(b'x'));
        assert!(matches!(read_line(&mut endless), Ok(Some(Line::TooLong))));
        let text = [vec![b'y'; LINE_BYTES], b"\nlast".to_vec()].concat();
        let mut text = text.as_slice();
        assert!(matches!(read_line(&mut text), Ok(Some(Line::Whole(line))) if line.len() == LINE_BYTES));
        assert!(matches!(read_line(&mut text), Ok(Some(Line::Whole(line))) if line == b"last"));
        assert!(matches!(read_line(&mut text), Ok(None)));
    }
}
