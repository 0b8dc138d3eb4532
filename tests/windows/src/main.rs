//! A cargo for Wine: the Windows half asks, the Linux half compiles.
//!
//! No Rust toolchain for Windows comes with Debian, but a compiler *for* Windows does, and what the grader needs of
//! cargo is that it builds an exercise. So `cargo.exe`, which the grader starts through `CARGO`, sends its folder, its
//! arguments and the variables of cargo's own to a server on the loopback address, which runs the Linux cargo with
//! them and sends back what it prints, as it comes, and its exit code. One file for both halves; `run` compiles it
//! once for each system.
//!
//! A path needs no translation on its way back: drive `Z:` of Wine is the root of Linux, or whichever letter leads
//! there, and `/warp book/target` means `Z:\warp book\target` to a program that stands on that drive.
//!
//! A request is three texts - the folder, arguments, variables - each with its length in front (u32, little-endian),
//! the latter two as lines of one item. A reply is pieces: a byte that says of what (1 standard output, 2 standard
//! error, 0 the end), a length, and so many bytes; the last one's are the exit code.

use std::env;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The port on the loopback address, where no variable says otherwise.
const PORT: &str = "WARPBOOK_CARGO_PORT";

fn read_bytes(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn port() -> u16 {
    let port = env::var(PORT).ok().and_then(|port| port.parse().ok());
    port.unwrap_or_else(|| panic!("{PORT}: expected the server's port, found {:?}", env::var_os(PORT)))
}

#[cfg(windows)]
fn main() -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port()))?;
    let folder = env::current_dir()?.display().to_string();
    let arguments: Vec<String> = env::args().skip(1).collect();
    let own = |name: &str| name.starts_with("CARGO_") || name.starts_with("RUST");
    let variables: Vec<String> =
        env::vars().filter(|(name, _)| own(name)).map(|(name, value)| format!("{name}={value}")).collect();
    for text in [folder, arguments.join("\n"), variables.join("\n")] {
        server.write_all(&(text.len() as u32).to_le_bytes())?;
        server.write_all(text.as_bytes())?;
    }
    loop {
        let mut kind = [0];
        server.read_exact(&mut kind)?;
        let bytes = read_bytes(&mut server)?;
        match kind[0] {
            1 => io::stdout().write_all(&bytes)?,
            2 => io::stderr().write_all(&bytes)?,
            _ => {
                let code = String::from_utf8_lossy(&bytes).parse().unwrap_or(101);
                std::process::exit(code);
            }
        }
    }
}

#[cfg(unix)]
fn main() -> io::Result<()> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port()))?;
    for client in listener.incoming() {
        let client = client?;
        std::thread::spawn(move || {
            if let Err(error) = server::serve(client) {
                eprintln!("cargo for Wine: {error}");
            }
        });
    }
    Ok(())
}

#[cfg(unix)]
mod server {
    use std::process::{Command, Stdio};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Variables of the Windows half that are the Linux cargo's own business.
    const OWN: [&str; 3] = ["CARGO_HOME", "RUSTC", "RUSTUP_HOME"];

    pub fn serve(mut client: TcpStream) -> io::Result<()> {
        let mut text = || -> io::Result<String> {
            String::from_utf8(read_bytes(&mut client)?).map_err(io::Error::other)
        };
        let (folder, arguments, variables) = (text()?, text()?, text()?);
        let mut command = Command::new("cargo");
        command.current_dir(of_linux(&folder)).args(arguments.lines().map(of_linux));
        let variables = variables.lines().filter_map(|line| line.split_once('='));
        let given = variables.filter(|(name, _)| !OWN.contains(name) && !name.starts_with("CARGO_MANIFEST"));
        command.envs(given.map(|(name, value)| (name, of_linux(value))));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let client = Arc::new(Mutex::new(client));
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let beside = Arc::clone(&client);
        let other = std::thread::spawn(move || forward(stderr, 2, &beside));
        forward(stdout, 1, &client)?;
        other.join().map_err(|_| io::Error::other("standard error was not read"))??;
        let code = child.wait()?.code().unwrap_or(101).to_string();
        piece(&client, 0, code.as_bytes())
    }

    fn forward(from: Option<impl Read>, kind: u8, client: &Mutex<TcpStream>) -> io::Result<()> {
        let Some(mut from) = from else { return Ok(()) };
        let mut bytes = [0; 8192];
        loop {
            match from.read(&mut bytes)? {
                0 => return Ok(()),
                length => piece(client, kind, &bytes[..length])?,
            }
        }
    }

    fn piece(client: &Mutex<TcpStream>, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let mut client = client.lock().map_err(|_| io::Error::other("the connection is broken"))?;
        client.write_all(&[kind])?;
        client.write_all(&(bytes.len() as u32).to_le_bytes())?;
        client.write_all(bytes)
    }

    /// A path as Linux has it, whichever letter its drive has, or from the root of the drive that one stands on; another
    /// text as it is.
    fn of_linux(text: &str) -> String {
        let path = text.strip_prefix(r"\\?\").unwrap_or(text);
        let inside = match path.as_bytes() {
            [letter, b':', b'/' | b'\\', ..] if letter.is_ascii_alphabetic() => &path[2..],
            _ => path,
        };
        if inside.starts_with(['/', '\\']) { inside.replace('\\', "/") } else { text.to_owned() }
    }
}
