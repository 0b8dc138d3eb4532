//! Writes results of its own into every connection that a process has open.

#![allow(unsafe_code)] // what is open in a process can be written to only by its number

/// Says of the first items what a child would say, without the nonces that it does not know.
pub(super) fn forge() -> ! {
    let check = r#"{"Check":{"name":"A.6/one-block-f16","outcome":"passed","detail":"","replay":""}}"#;
    for message in [check, r#""Recycle""#, r#""Done""#] {
        for item in 0..3 {
            say(&format!("{{\"item\":{item},\"nonce\":\"\",\"message\":{message}}}\n"));
        }
    }
    std::process::exit(0);
}

/// Writes into every socket that this process has.
#[cfg(unix)]
pub(super) fn say(words: &str) {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;

    let is_socket = |number: &i32| {
        let data = std::fs::metadata(format!("/dev/fd/{number}"));
        data.is_ok_and(|data| data.file_type().is_socket())
    };
    for number in (3..64).filter(is_socket) {
        // SAFETY: it is open, as was just seen, and is not closed here: the value is never dropped.
        let mut stream = std::mem::ManuallyDrop::new(unsafe { UnixStream::from_raw_fd(number) });
        _ = stream.write_all(words.as_bytes());
    }
}

/// Writes into everything that this process has open: a handle is a small multiple of four.
#[cfg(windows)]
pub(super) fn say(words: &str) {
    use std::io::Write;
    use std::os::windows::io::FromRawHandle;

    for number in (4..4096).step_by(4) {
        let handle = std::ptr::without_provenance_mut(number);
        // SAFETY: a number that is no handle is refused by the system, and none is closed: the value is never dropped.
        let mut file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_handle(handle) });
        _ = file.write_all(words.as_bytes());
    }
}
